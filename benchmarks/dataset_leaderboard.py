"""Leaderboards of a dataset as tables of a page.

    python benchmarks/dataset_leaderboard.py core-1 [--baselines all] [--tasks localization] [--out FOLDER] [--write]

The script runs `evaluate DATASET --evidence 10,30,60`; `--out` stores the evaluation and resumes an interrupted one.
Methods and controls are sorted by their figure over all applications. `--write` puts the tables into
datasets/DATASET/leaderboard.md, between the dataset's markers; tables of other tasks stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import pandas as pd

from faultset.core.command_line.progress import report_progress
from faultset.datasets import open_dataset
from faultset.evaluators import evaluate
from faultset.evaluators.leaderboards.number_formats import p_value
from faultset.evaluators.leaderboards.records import ALL_APPS
from faultset.evaluators.leaderboards.track_records import FILE, TrackRecord, read_track_records, replace_track_records
from faultset.evaluators.scoring.metrics import BUDGETS_S

DATASETS = Path(__file__).parents[1] / "datasets"
RECORDS = Path(__file__).parents[1] / "evaluators" / "faultset" / "evaluators" / "leaderboards" / FILE


@dataclass(frozen=True)
class Section:
    """One table: the metric that ranks, its range over applications, and more metrics."""

    title: str
    task: str
    protocol: str
    figure: str
    further: tuple[tuple[str, str, int], ...]
    """Metric, heading and decimals."""


def list_budget_columns(metric: str) -> tuple[tuple[str, str, int], ...]:
    """Return the columns of a metric with less evidence."""
    return tuple((f"{metric}_{seconds}s", f"{seconds} s", 2) for seconds in BUDGETS_S)


HEADINGS = {"detection": "Detection", "localization": "Localization", "rca": "Root cause"}
"""First words of the titles of a task's tables."""
_DEEPER = (*list_budget_columns("ac1"), ("ac3", "AC@3", 2), ("avg5", "Avg@5", 2))
SECTIONS = (
    Section(
        "Detection: timed balanced accuracy",
        "detection",
        "detected",
        "timed_balanced_accuracy",
        (
            ("timed_balanced_accuracy[train-quantile(0.995)]", "the same, train-quantile(0.995)", 2),
            ("balanced_accuracy", "balanced accuracy", 2),
            ("vus_pr", "VUS-PR", 2),
            *((f"detected_within_{seconds}s", f"detected in {seconds} s", 2) for seconds in BUDGETS_S),
            ("event_recall", "event recall", 2),
            ("false_alarms_per_hour", "false alarms per hour", 1),
            ("ttd_median", "median time to detect, s", 0),
        ),
    ),
    Section("Localization, given the onset: AC@1", "localization", "oracle", "ac1", _DEEPER),
    Section(
        "Localization, given the alarm of a detector: AC@1",
        "localization",
        "detected",
        "ac1",
        _DEEPER,
    ),
    Section(
        "Root cause: level and type both right",
        "rca",
        "oracle",
        "joint",
        (*list_budget_columns("joint"), ("level", "level", 2), ("type", "type", 2)),
    ),
)


def table_of(frame: pd.DataFrame, section: Section) -> list[str]:
    """Return the lines of a table in Markdown; none if the task was not evaluated."""
    chosen = frame[
        (frame["task"] == section.task)
        & (frame["protocol"] == section.protocol)
        & (frame["verdict"] == "manifest")
        & (frame["group"] == "telemetry")
        & frame[section.figure].notna()
    ]
    overall = chosen[chosen["faults"] == "all"]
    if overall.empty:
        return []
    apps = [app for app in overall["app"].unique() if app != ALL_APPS]
    whole = ALL_APPS if ALL_APPS in set(overall["app"]) else apps[0]
    overall = overall[overall["app"] == whole].sort_values(section.figure, ascending=False, kind="stable")
    by_app = overall.set_index(["app", "baseline"])[section.figure]
    by_faults = chosen[chosen["app"] == whole].set_index(["faults", "baseline"])[section.figure]
    loudness = [name for name in ("gray", "loud") if name in by_faults.index.get_level_values(0)]
    further = [column for column in section.further if column[0] in overall and overall[column[0]].notna().any()]
    control = str(overall["control"].iloc[0])
    heads = ["method", "kind", "all", f"vs {control}", *apps, *loudness, *(heading for _, heading, _ in further)]
    lines = [f"### {section.title}", "", f"| {' | '.join(heads)} |", f"|---|---|{'---:|' * (len(heads) - 2)}"]
    for row in overall.to_dict("records"):
        name = str(row["baseline"])
        ends = (row[f"{section.figure}_low"], row[f"{section.figure}_high"])
        cells = [f"`{name}`", str(row["kind"]), f"{number(row[section.figure])} {interval(*ends)}"]
        cells.append(format_difference(row["vs_control"], row["p"], beats=row["beats_control"]))
        cells += [number(by_app.get((app, name), math.nan)) for app in apps]
        cells += [number(by_faults.get((faults, name), math.nan)) for faults in loudness]
        cells += [number(row[metric], decimals) for metric, _, decimals in further]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def record_results(frame: pd.DataFrame, section: Section, dataset: str) -> list[TrackRecord]:
    """Return the figures of a table as records; none for localizers that get the alarm of a detector."""
    chosen = frame[
        (frame["task"] == section.task)
        & (frame["protocol"] == section.protocol)
        & (frame["verdict"] == "manifest")
        & (frame["faults"] == "all")
        & frame[section.figure].notna()
    ]
    if chosen.empty or (section.task, section.protocol) == ("localization", "detected"):
        return []
    whole = ALL_APPS if ALL_APPS in set(chosen["app"]) else str(chosen["app"].iloc[0])
    chosen = chosen[chosen["app"] == whole]
    best = chosen.sort_values(section.figure, ascending=False).iloc[0]
    controls = chosen[chosen["kind"] == "control"][section.figure]
    return [
        TrackRecord(
            baseline=str(row["baseline"]),
            task=section.task,
            dataset=dataset,
            figure=section.title.rpartition(": ")[2],
            value=float(row[section.figure]),
            near_best=bool(row[section.figure] >= best[f"{section.figure}_low"]),
            above_controls=bool(row["kind"] != "control" and row[section.figure] > controls.max()),
        )
        for row in chosen.to_dict("records")
    ]


def number(value: float, decimals: int = 2) -> str:
    """Format a figure; "never" if infinite, empty if missing."""
    return "" if math.isnan(value) else "never" if math.isinf(value) else f"{value:.{decimals}f}"


def format_difference(difference: float | None, p: float | None, *, beats: bool) -> str:
    """Format the difference to the strongest control with its corrected p; empty for controls."""
    if difference is None or math.isnan(difference):
        return ""
    corrected = "" if p is None else f" {p_value(p)}".rstrip()
    return f"{difference:+.2f}{corrected}{', beats it' if beats else ''}"


def interval(low: float, high: float) -> str:
    """Format a 95 % interval; empty if missing."""
    return f"[{low:.2f}, {high:.2f}]" if not math.isnan(low) else ""


def write_tables(name: str, tables: Mapping[Section, Sequence[str]]) -> None:
    """Replace tables between the markers of a dataset's leaderboard; keep those of other tasks."""
    document = DATASETS / name / "leaderboard.md"
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    before, _, rest = document.read_text("utf-8").partition(begin)
    former, separator, after = rest.partition(end)
    if not separator:
        raise click.ClickException(f"{document} has no markers {begin} and {end}; add them where the tables belong")
    new_tasks = {section.task for section in tables}
    blocks = [f"### {block.strip()}" for block in former.split("### ")[1:]]
    texts = []
    for task, heading in HEADINGS.items():
        former_tables = [block for block in blocks if block.startswith(f"### {heading}")]
        new = ["\n".join(lines).strip() for section, lines in tables.items() if section.task == task]
        texts += new if task in new_tasks else former_tables
    content = "\n\n".join(text for text in texts if text)
    document.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}", "utf-8")


@click.command()
@click.argument("dataset")
@click.option("--baselines", default="default", show_default=True, help="Names or groups, with commas.")
@click.option("--tasks", default=",".join(HEADINGS), show_default=True, help="Names with commas.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evaluation; an interrupted one is resumed.")
@click.option("--evidence", default="10,30,60", show_default=True, help="Seconds of evidence, with commas; or none.")
@click.option("--workers", type=int, default=2, show_default=True)
@click.option("--write", is_flag=True, help="Put the tables into datasets/DATASET/leaderboard.md.")
def main(dataset: str, baselines: str, tasks: str, out: Path | None, evidence: str, workers: int, write: bool) -> None:
    """Print the tables."""
    chosen = tasks.split(",")
    with report_progress("evaluating") as progress:
        done = evaluate(
            open_dataset(dataset),
            baselines.split(","),
            tasks=chosen,
            evidence=[] if evidence == "none" else [float(seconds) for seconds in evidence.split(",")],
            workers=workers,
            out=out,
            progress=progress,
        )
    if out is not None:
        done.write(out)
    frame = done.leaderboard(intervals=True, faults=None)
    tables = {section: table_of(frame, section) for section in SECTIONS if section.task in chosen}
    click.echo("\n".join(line for lines in tables.values() for line in lines))
    if write:
        name = Path(dataset).name
        write_tables(name, tables)
        former = [record for rows in read_track_records().values() for record in rows]
        records = [record for record in former if record.dataset == name and record.task not in chosen]
        records += [record for section in tables for record in record_results(frame, section, name)]
        replace_track_records(RECORDS, name, records)


if __name__ == "__main__":
    main()
