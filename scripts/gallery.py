"""Draw the pictures of faults, leaderboard and report in docs/images; the last one needs chromium.

evaluate datasets/sample --out gallery-results --baselines \\
    max-z-detector,ksigma,mksmc,clock,always-yes,random-detector,max-z,rmlad,kubernetes-state,pdiagnose,baro,random
python scripts/gallery.py gallery-results
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from PIL import Image

from faultset.datasets import open_dataset

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
COLOURS = {"ok": "#4c78a8", "other": "#e45756"}
WIDTH_PX = 1240
KINDS = {
    "named": "of the AIOpsLab paper",
    "method": "other published method",
    "own": "our variant of one",
    "rule": "rule",
    "control": "control",
}


def draw_faults(path: Path) -> None:
    """Draw the requests of clients in every faulty episode, and mark the time of the fault."""
    dataset = open_dataset(ROOT / "datasets" / "sample")
    faulty = [episode for episode in dataset.episodes if dataset.label(episode).fault]
    figure, axes = plt.subplots(len(faulty), 1, figsize=(9, 1.35 * len(faulty)), sharex=True, layout="constrained")
    for axis, episode in zip(axes, faulty, strict=True):
        view, label = dataset.view(episode), dataset.label(episode)
        requests = view.table("requests", columns=["scheduled", "latency_ns", "outcome"]).to_pandas()
        seconds = (requests["scheduled"].astype("int64") - view.window[0]) / 1e9
        latency = requests["latency_ns"].astype(float).fillna(1e10) / 1e6
        good = (requests["outcome"] == "ok").to_numpy()
        axis.scatter(seconds[good], latency[good], s=5, color=COLOURS["ok"], label="answered")
        axis.scatter(seconds[~good], latency[~good], s=7, color=COLOURS["other"], marker="x", label="failed")
        onset, undone = ((time - view.window[0]) / 1e9 for time in (label.onset_ns, view.window[1]))
        axis.axvspan(onset, undone, color="#f2cf5b", alpha=0.35, lw=0, zorder=0)
        axis.set(yscale="log", ylim=(1, 2e4), yticks=[10, 1000])
        axis.set_title(f"{label.fault} in {', '.join(label.targets)}: {label.verdict}", loc="left", fontsize=9)
    axes[0].legend(loc="upper left", fontsize=7, ncols=2)
    axes[len(faulty) // 2].set_ylabel("latency of client requests [ms]")
    axes[-1].set_xlabel("seconds since the view began; the fault is in effect where the background is yellow")
    figure.savefig(path, dpi=110)


def draw_leaderboard(results: Path, path: Path) -> None:
    """Draw the main metric of each leaderboard on manifest faults, with its interval and the score of guessing."""
    leaderboard = json.loads((results / "leaderboard.json").read_text())
    headline = [table for table in leaderboard["tables"] if (table["verdict"], table["faults"]) == ("manifest", "all")]
    tables = [table for table in headline if table["task"] != "rca"]
    heights = [len(table["entries"]) + 2 for table in tables]
    figure, axes = plt.subplots(
        len(tables), 1, figsize=(9, 0.22 * sum(heights)), height_ratios=heights, sharex=True, layout="constrained"
    )
    colours = report_colours()
    for axis, table in zip(axes, tables, strict=True):
        _draw_table(axis, table, colours)
    axes[-1].set_xlim(-0.02, 1.02)
    shown = {entry["kind"] for table in tables for entry in table["entries"]}
    marks = [
        Line2D([], [], color=colours[kind], marker="o", ms=4, label=KINDS[kind]) for kind in KINDS if kind in shown
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def report_colours() -> dict[str, str]:
    """Return the colour that the report gives each kind of method on a light page."""
    light = (files("faultset.evaluators.reports") / "page.css").read_text("utf-8").split("@media")[0]
    return {kind: re.findall(rf"--{kind}: (#[0-9a-f]{{6}})", light)[0] for kind in KINDS}


def _draw_table(axis: Any, table: dict[str, Any], colour_of: dict[str, str]) -> None:
    metric = table["metrics"][0]["name"]
    entries = [entry for entry in table["entries"] if entry["metrics"][metric]["value"] is not None][::-1]
    intervals = [entry["metrics"][metric] for entry in entries]
    values, lows, highs = (np.array([bounds[key] for bounds in intervals], float) for key in ("value", "low", "high"))
    colours = [colour_of[entry["kind"]] for entry in entries]
    rows = np.arange(len(entries))
    axis.hlines(rows, lows, highs, colors=colours)
    axis.scatter(values, rows, c=colours, s=18, zorder=3)
    axis.set_yticks(rows, [entry["baseline"] for entry in entries], fontsize=8)
    floor = table["floor"].get(metric)
    if floor is not None and floor["value"] is not None:
        axis.axvline(floor["value"], color=COLOURS["other"], lw=1, ls="--")
    start = {"detected": "given an alarm", "oracle": "given the true onset"}[table["protocol"]]
    metric_title = table["metrics"][0]["title"]
    task = "detection" if table["task"] == "detection" else f"localization, {start}"
    title = f"{task}: {metric_title}"
    axis.set_title(title, loc="left", fontsize=9)


def draw_report(results: Path, path: Path) -> None:
    """Take a screenshot of the beginning of the report."""
    begin = (results / "report.html").read_text("utf-8").partition('<h2 id="localization">')[0]
    with tempfile.TemporaryDirectory() as folder:
        short, shot = Path(folder) / "report.html", Path(folder) / "report.png"
        short.write_text(f"{begin}</main></body></html>", "utf-8")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH_PX},4000"]
        command = ["chromium", *options, f"--screenshot={shot}", short.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        with Image.open(shot) as picture:
            pixels = np.asarray(picture.convert("RGB"))
            filled = np.flatnonzero((pixels != pixels[-1, 0]).any(axis=(1, 2)))
            picture.convert("RGB").crop((0, 0, WIDTH_PX, int(filled[-1]) + 30)).save(path, optimize=True)


if __name__ == "__main__":
    draw_faults(IMAGES / "faults.png")
    draw_leaderboard(Path(sys.argv[1]), IMAGES / "leaderboard.png")
    if shutil.which("chromium"):
        draw_report(Path(sys.argv[1]), IMAGES / "report.png")
    else:
        sys.exit("report.png is unchanged, because chromium is missing; install it to take the picture")
