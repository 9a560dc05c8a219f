"""Leaderboards of a dataset as tables of a page.

    python benchmarks/dataset_leaderboard.py core-2 [--baselines all] [--out FOLDER] [--write]

The script runs `evaluate DATASET --evidence 10,30,60` and prints its tables over all applications, with the first
metric by application and by loudness of the faults. `--out` stores the evaluation and resumes an interrupted one.
`--write` puts the tables into datasets/DATASET/leaderboard.md, between the dataset's markers, and the results of the
methods into the track records of `faultset list baselines`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from faultset.core.output import report_progress
from faultset.datasets import open_dataset
from faultset.evaluators import Evaluation, evaluate
from faultset.evaluators.leaderboards.formats import head_lines
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, RECORDED, TELEMETRY, Table
from faultset.evaluators.leaderboards.rendering import choose_columns, list_policy_metrics, render_table
from faultset.evaluators.leaderboards.texts import TextCell, TextColumn, TextTable, format_number, format_p
from faultset.evaluators.leaderboards.track_records import TrackRecord, replace_track_records
from faultset.evaluators.recordings.tables import DetectorRuns, compute_recall_gain, list_recall_gains
from faultset.evaluators.results.truth import Loudness
from faultset.evaluators.scoring.metrics import BUDGETS_S
from faultset.evaluators.scoring.paired_tests import holm, paired_difference

DATASETS = Path(__file__).parents[1] / "datasets"


def list_whole_tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables over all applications and faults; of one application if the dataset has no other."""
    apps = {table.app for table in evaluation.tables}
    whole = ALL_APPS if ALL_APPS in apps else min(apps)
    return [t for t in evaluation.tables if (t.app, t.verdict, t.faults) == (whole, HEADLINE, "all")]


def format_page(evaluation: Evaluation) -> str:
    """Return the settings of the evaluation and all tables in Markdown."""
    lines = [f"- {line}" for line in head_lines(evaluation.board)]
    for table in list_whole_tables(evaluation):
        lines += ["", *format_table(table, evaluation)]
    return "\n".join([*lines, "", *compare_trained(evaluation)]).strip()


def format_table(table: Table, evaluation: Evaluation) -> list[str]:
    """Return a table in Markdown: title, what it counts, methods, and the best method against the control."""
    policies = list_policy_metrics(table) if table.protocol == RECORDED else ()
    text = shorten_details(render_table(table, [*choose_columns(table), *policies]))
    for title, other in list_subset_tables(table, evaluation):
        values = {entry.baseline: entry.metrics[table.metrics[0].name].value for entry in other.entries}
        cells = [
            format_number(values[entry.baseline], table.metrics[0]) if entry.baseline in values else ""
            for entry in table.entries
        ]
        text = add_column(text, title, cells)
    lines = [f"### {table.title}", "", f"{table.header}.", ""]
    lines += [table.note, ""] if table.note else []
    lines += text.markdown()
    lines += ["", f"**{table.standing}.**"] if table.standing else []
    return [*lines, *list_target_texts(table, evaluation)]


def list_target_texts(table: Table, evaluation: Evaluation) -> list[str]:
    """Return a line per application with the candidates of localizers that get the true onset; empty for others."""
    if (table.task, table.protocol, table.group) != ("localization", "oracle", TELEMETRY):
        return []
    apps = {app: evaluation.board.table("localization", "oracle", app=app) for app in _list_apps(evaluation)}
    return ["", *(f"- {app}: {other.target_text}" for app, other in apps.items() if other is not None)]


def _list_apps(evaluation: Evaluation) -> list[str]:
    return sorted({table.app for table in evaluation.tables} - {ALL_APPS})


def shorten_details(text: TextTable) -> TextTable:
    """Leave out the counts behind values, and all details in columns that the terminal shortens too."""

    def shorten(cell: TextCell, column: TextColumn) -> TextCell:
        if column.title.startswith("vs "):
            return cell
        return TextCell(text=cell.text) if column.brief else replace(cell, counts="")

    rows = (tuple(map(shorten, row, text.columns)) for row in text.rows)
    return replace(text, rows=tuple(rows))


def list_subset_tables(table: Table, evaluation: Evaluation) -> Iterator[tuple[str, Table]]:
    """Yield title and table of the gray and the loud faults, then of each application."""
    apps = [app for app in _list_apps(evaluation) if app != table.app]
    keys: list[tuple[str, str, Loudness]] = [("gray", table.app, "gray"), ("loud", table.app, "loud")]
    for title, app, faults in [*keys, *((app, app, "all") for app in apps)]:
        other = evaluation.board.table(
            table.task, table.protocol, app=app, verdict=HEADLINE, group=table.group, faults=faults
        )
        if other is not None:
            yield f"{title} ({other.episodes})", other


def add_column(text: TextTable, title: str, cells: list[str]) -> TextTable:
    """Return a table with one more column, which is empty in the rows below the methods."""
    cells = cells + [""] * (len(text.rows) - len(cells))
    rows = ((*row, TextCell(text=cell)) for row, cell in zip(text.rows, cells, strict=True))
    return replace(text, columns=(*text.columns, TextColumn(title=title)), rows=tuple(rows))


def compare_trained(evaluation: Evaluation) -> list[str]:
    """Return a table that compares trained detectors on recordings with untrained ones; empty if there are none."""
    if evaluation.recordings is None:
        return []
    runs = {name: DetectorRuns(runs=tuple(each)) for name, each in evaluation.recordings.runs.items()}
    pairs = {name: (runs[name], runs[f"untrained-{name}"]) for name in runs if f"untrained-{name}" in runs}
    differences = {
        name: paired_difference(
            list_recall_gains(trained), list_recall_gains(twin), [item.cluster for item in trained.headline]
        )
        for name, (trained, twin) in pairs.items()
    }
    adjusted = holm([pair.test.p for pair in differences.values()])
    lines = ["### detection on recordings · trained and untrained networks", ""]
    lines += ["Recall above that of random alarms at the same rate, with a paired test over clusters (Holm).", ""]
    lines += ["| method | trained | untrained | difference |", "|---|---|---|---|"]
    for (name, pair), p in zip(differences.items(), adjusted, strict=True):
        values = (f"{compute_recall_gain(each):+.2f}" for each in pairs[name])
        low, high = pair.difference.low, pair.difference.high
        test = f"{pair.difference.value:+.2f} {format_p(p)} [{low:+.2f}, {high:+.2f}]"
        lines.append(f"| {name} | {' | '.join(values)} | {test} |")
    return lines if pairs else []


def list_records(table: Table, evaluation: Evaluation, dataset: str) -> list[TrackRecord]:
    """Return the results of the methods of a table; none for methods that get the alarm of a detector."""
    metric, best = table.metrics[0], table.entries[0]
    if table.protocol == RECORDED and evaluation.recordings is not None:
        figure, runs = "recall beyond random alarms", evaluation.recordings.runs
        values = {
            entry.baseline: compute_recall_gain(DetectorRuns(runs=tuple(runs[entry.baseline])))
            for entry in table.entries
        }
        bound = values[best.baseline] if best.against is None else best.against.difference.low
    elif table.task != "detection" and table.protocol == "detected":
        return []
    else:
        figure = metric.title
        values = {entry.baseline: entry.metrics[metric.name].value for entry in table.entries}
        bound = best.metrics[metric.name].low
    return [
        TrackRecord(
            baseline=entry.baseline,
            task=table.task,
            dataset=dataset,
            figure=figure,
            value=values[entry.baseline],
            near_best=table.strongest_control is not None and values[entry.baseline] >= bound,
            beats_control=entry.beats_control,
        )
        for entry in table.entries
        if not math.isnan(values[entry.baseline])
    ]


def write_results(evaluation: Evaluation, name: str) -> None:
    """Replace the text between the markers of a dataset's leaderboard, and the dataset's track records."""
    document = DATASETS / name / "leaderboard.md"
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    before, _, rest = document.read_text("utf-8").partition(begin)
    _, separator, after = rest.partition(end)
    if not separator:
        raise click.ClickException(f"{document} has no markers {begin} and {end}; add them where the tables belong")
    document.write_text(f"{before}{begin}\n\n{format_page(evaluation)}\n\n{end}{after}", "utf-8")
    tables = list_whole_tables(evaluation)
    replace_track_records(name, [r for table in tables for r in list_records(table, evaluation, name)])


@click.command()
@click.argument("dataset")
@click.option("--baselines", default="default", show_default=True, help="Names or groups, with commas.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evaluation; an interrupted one is resumed.")
@click.option("--workers", type=int, default=2, show_default=True)
@click.option("--write", is_flag=True, help="Put the tables into datasets/DATASET/leaderboard.md.")
def main(dataset: str, baselines: str, out: Path | None, workers: int, write: bool) -> None:
    """Print the tables."""
    with report_progress("evaluating") as progress:
        evaluation = evaluate(
            open_dataset(dataset),
            baselines.split(","),
            evidence=BUDGETS_S,
            workers=workers,
            out=out,
            progress=progress,
        )
    click.echo(format_page(evaluation))
    if write:
        write_results(evaluation, Path(dataset).name)


if __name__ == "__main__":
    main()
