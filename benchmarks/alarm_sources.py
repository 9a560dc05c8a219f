"""Which detector should raise the alarm that localizers are given: a table over detectors, beside the true onset.

    python benchmarks/alarm_sources.py datasets/sample [--detectors spot,ksigma] [--localizers simple-rca,pdiagnose]
    python benchmarks/alarm_sources.py core-1 --detection-only

A detector that alarms without a fault starts a search for nothing, so the choice is among those whose rate of alarms
in episodes without a fault is below 5 %; of these it is the one with the largest event recall, then the smallest median
time to detect. The table says in how many episodes that rate was measured, and its interval: with three episodes no
rate below 5 % can be shown. What localizers make of each detector's alarms takes an evaluation for each of them and is
left out with `--detection-only`; the choice does not depend on it.
"""

from __future__ import annotations

import click
import numpy as np
import pandas as pd

from faultset.evaluators import evaluate
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards.records import ALL_APPS
from faultset.evaluators.statistics.clusters import clustered_mean

DETECTORS = ("spot", "ksigma", "mksmc", "lof", "mahalanobis", "pca-spe", "trace-errors", "log-rate")
LOCALIZERS = ("simple-rca", "nsigma", "baro", "tracerca", "pdiagnose", "max-z")
MOST_FALSE_ALARMS = 0.05


def detection_facts(done: Evaluation, detector: str) -> tuple[int, int, str, float, float]:
    """Return alarms without a fault, such episodes, the interval of the rate, event recall and median seconds."""
    rows = [row for row in done.rows if row.baseline == detector and row.protocol == "detected"]
    healthy: dict[str, list[float]] = {}
    for row in rows:
        if not row.truth.faulty:
            healthy.setdefault(row.episode, []).append(float(row.alarm_ns is not None or row.status != "ok"))
    rates = [float(np.mean(values)) for values in healthy.values()]
    rate = clustered_mean(rates, list(healthy))
    frame = _of_all_apps(done.leaderboard("detection"))
    line = frame[(frame["verdict"] == "manifest") & (frame["baseline"] == detector)]
    return (
        round(sum(rates)),
        len(rates),
        f"[{rate.low:.2f}, {rate.high:.2f}]",
        float(line["event_recall"].item()),
        float(line["ttd_median"].item()),
    )


def _of_all_apps(board: pd.DataFrame) -> pd.DataFrame:
    """Return the lines over all applications; with one application there are no others."""
    several = board["app"] == ALL_APPS
    return board[several] if several.any() else board


def localization_scores(done: Evaluation, protocol: str) -> dict[str, tuple[float, float]]:
    """Return localizer -> AC@1 and Avg@5 on headline episodes."""
    frame = _of_all_apps(done.leaderboard("localization"))
    chosen = frame[(frame["protocol"] == protocol) & (frame["verdict"] == "manifest")]
    return {line["baseline"]: (line["ac1"], line["avg5"]) for _, line in chosen.iterrows()}


@click.command()
@click.argument("dataset")
@click.option("--detectors", default=",".join(DETECTORS), show_default=True)
@click.option("--localizers", default=",".join(LOCALIZERS), show_default=True)
@click.option("--detection-only", is_flag=True, help="Leave out what localizers make of the alarms.")
@click.option("--workers", type=int, default=2, show_default=True)
def main(dataset: str, detectors: str, localizers: str, detection_only: bool, workers: int) -> None:
    """Print the table, and which detector it chooses."""
    names, where = detectors.split(","), [] if detection_only else localizers.split(",")

    def cells(alarm: str | None) -> str:
        if not where:
            return ""
        protocol = "oracle" if alarm is None else "detected"
        done = evaluate(
            dataset,
            where,
            tasks=("localization",),
            protocol=protocol,
            thresholds=("reference",),
            workers=workers,
            **({} if alarm is None else {"alarm": alarm}),
        )
        scores = localization_scores(done, protocol)
        return "".join(f" {scores[one][0]:.2f} / {scores[one][1]:.2f} |" for one in where)

    found = evaluate(dataset, names, tasks=("detection",), thresholds=("reference",), workers=workers)
    print(f"| alarm | alarms without a fault | event recall | median TTD, s |{''.join(f' {one} |' for one in where)}")
    print("|---|---|---|---|" + "---|" * len(where))
    choices = []
    for name in names:
        false, healthy, interval, recall, seconds = detection_facts(found, name)
        facts = f"{false} of {healthy} {interval} | {recall:.2f} | {seconds:.1f}"
        print(f"| `{name}` | {facts} |{cells(name)}", flush=True)
        if healthy and false / healthy < MOST_FALSE_ALARMS:
            choices.append((-recall, seconds, name))
    if where:
        print(f"| oracle | | | |{cells(None)}")
    print(f"\nchosen: {min(choices)[2] if choices else 'none, all alarm too often without a fault'}")


if __name__ == "__main__":
    main()
