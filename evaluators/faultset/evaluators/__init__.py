"""Score every diagnosis method on the same episodes, beside controls, with intervals.

running      baselines on episodes, in parallel, each in a process that can be killed
rows         one record for every answer; what is stored in `results.parquet`
scoring      pure functions from one answer and the truth to numbers
statistics   intervals and tests over episodes
leaderboards tables computed from rows
reports      a self-contained HTML page
"""
