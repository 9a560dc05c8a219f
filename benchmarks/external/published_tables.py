"""Compare published results on a suite with others' reproductions and with our own run.

    python benchmarks/external/published_tables.py SUITE [SYSTEM=PATH ...] [--input FILE] [--out DIR]

Without SYSTEM=PATH it prints the published numbers only. PATH is a dataset, or the suite's downloaded folder or
archive, which is imported. Each is evaluated with the true onset. Failures and empty answers count as misses; the last
column leaves them out, as some published tables do. Repeat the command with the same --out to resume.

The numbers of others are in published_numbers.csv, each with its source.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.evaluators.results.rows import ResultRow, read_rows
from faultset.evaluators.scoring.localization import LocalizationScore, score_ranking

NUMBERS = Path(__file__).with_name("published_numbers.csv")
IMPORTERS = {"rcaeval": "rcaeval", "rcabench": "rcabench", "petshop": "petshop", "nezha": "nezha", "openrca": "openrca"}
"""Suite -> format to import; the others have no files to evaluate."""
BASELINES = (
    "baro,nsigma,prism,rcd,circa,epsilon-diagnosis,tracerca,microrank,micro-rca,micro-hecl,micro-dig,shapley-iq,simple-rca,"
    "pdiagnose,nezha,ranked-correlation,relative-change,alert-count,combined-evidence,combined-evidence-at-alarm,max-z,"
    "random"
)
METRICS = ("AC@1", "AC@3", "AC@5", "Avg@5", "MRR")
OURS = "ours"


@dataclass(frozen=True, kw_only=True)
class PublishedNumber:
    """A number of others, with its source."""

    suite: str
    system: str
    method: str
    metric: str
    value: float
    origin: str
    """published: by the authors of the table; reproduced: by a third party."""
    source: str
    location: str
    """Table or file in the source."""
    failures: str
    """Whether failed cases were counted or left out; empty if unknown."""
    note: str


def read_published(suite: str | None = None, system: str | None = None) -> list[PublishedNumber]:
    """Read the numbers of all suites, of one, or of one of its systems, in the order of the file."""
    with NUMBERS.open(encoding="utf-8", newline="") as file:
        rows = [PublishedNumber(**{**row, "value": float(row["value"])}) for row in csv.DictReader(file)]
    return [row for row in rows if suite in (None, row.suite) and system in (None, row.system)]


def main() -> None:
    suites = sorted({row.suite for row in read_published()})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=suites)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM=PATH")
    parser.add_argument("--baselines", default=BASELINES)
    parser.add_argument("--input", metavar="FILE", help="file to read if a case has several with the same telemetry")
    parser.add_argument("--out", type=Path, help="folder for datasets and results; a temporary one by default")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    paths = dict(item.partition("=")[::2] for item in options.systems)
    if not all(paths.values()):
        parser.error(f"systems must have the form SYSTEM=PATH, got {' '.join(options.systems)}")
    names = list(dict.fromkeys(row.system for row in read_published(options.suite)))
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        for system in [*names, *(name for name in paths if name not in names)]:
            numbers = read_published(options.suite, system)
            ours: list[ResultRow] = []
            head = ""
            if system in paths:
                dataset, ours = evaluate_system(options.suite, system, Path(paths[system]), out / system, options)
                head = describe_run(dataset, ours)
            print(f"## {options.suite}, {system}\n\n{head}{system_table(numbers, ours)}\n")


def evaluate_system(
    suite: str, system: str, path: Path, out: Path, options: argparse.Namespace
) -> tuple[Dataset, list[ResultRow]]:
    """Import PATH unless it is a dataset, evaluate it, and return the dataset and its rows."""
    from faultset.evaluators.cli.evaluate import evaluate

    folder = path
    if not (path / "versions").is_dir():
        if suite not in IMPORTERS:
            raise SystemExit(f"{suite} has no importer; give a dataset instead of {path}")
        folder = out / "dataset"
        import_dataset(IMPORTERS[suite], path, folder, workers=options.workers, input_file=options.input)
    arguments = ["--tasks", "localization", "--protocol", "oracle", "--thresholds", "reference"]
    arguments += ["--baselines", options.baselines, "--out", str(out / "results"), "--workers", str(options.workers)]
    evaluate.main([str(folder), *arguments], standalone_mode=False)
    dataset = open_dataset(folder)
    rows = read_rows(out / "results" / "results.parquet")
    faulty = [row for row in rows if row.task == "localization" and row.truth.faulty]
    return dataset, select_issues(dataset, faulty, system) if suite == "petshop" else faulty


def select_issues(dataset: Dataset, rows: Sequence[ResultRow], system: str) -> list[ResultRow]:
    """Return the rows of a PetShop scenario; with a metric after its name, those of its alarms."""
    scenario, _, metric = system.partition(" ")
    labels = {episode: dataset.label(episode) for episode in {row.truth.episode for row in rows}}
    chosen = {
        episode
        for episode, label in labels.items()
        if str(label.workload["name"]).startswith(scenario) and label.parameters["alarm"]["metric"].startswith(metric)
    }
    return [row for row in rows if row.truth.episode in chosen]


def describe_run(dataset: Dataset, rows: Sequence[ResultRow]) -> str:
    """Return population, windows and input files of our run."""
    truths = list({row.truth.episode: row.truth for row in rows}.values())
    healthy_s = median((t.reference_end_ns - t.view_start_ns) / SECOND_NS for t in truths)
    after_s = median((t.view_end_ns - (t.onset_ns or t.reference_end_ns)) / SECOND_NS for t in truths)
    inputs = dataset.provenance.get("import", {}).get("inputs")
    files = f"; input {json.dumps(inputs)}" if inputs else ""
    candidates = median(len(t.candidates) for t in truths)
    chance = sum(1 / len(t.candidates) for t in truths) / len(truths)
    return (
        f"Ours: {len(truths)} faults, {candidates:g} candidates (chance of AC@1 {chance:.3f}), "
        f"{healthy_s:g} s reference, {after_s:g} s after the onset{files}.\n\n"
    )


def system_table(numbers: Sequence[PublishedNumber], ours: Sequence[ResultRow]) -> str:
    """Return the rows of others, then ours by AC@1, as Markdown."""
    metrics = [name for name in METRICS if any(row.metric == name for row in numbers)] or list(METRICS)
    metrics += sorted({row.metric for row in numbers} - set(METRICS))
    body = [
        [method, origin, *(cells.get(name, "") for name in metrics), failures, where]
        for (method, origin, failures, where), cells in _group(numbers).items()
    ]
    answers: dict[str, list[ResultRow]] = {}
    for row in ours:
        answers.setdefault(row.baseline, []).append(row)
    scored = {name: [_score(row) for row in rows] for name, rows in answers.items()}
    for name in sorted(scored, key=lambda name: (-_mean(scored[name], "AC@1"), name)):
        answered = [score for score in scored[name] if score.blocks]
        means = [_format(_mean(scored[name], metric)) if metric in METRICS else "not comparable" for metric in metrics]
        without = f"AC@1 without failures {_format(_mean(answered, 'AC@1'))}" if answered else "no answer"
        if len(answered) < len(scored[name]):
            without += f"; {len(scored[name]) - len(answered)} of {len(scored[name])} without an answer"
        body.append([f"`{name}`", OURS, *means, "counted", without])
    head = ["method", "origin", *metrics, "failures", "source"]
    rule = ["---", "---", *["---:"] * len(metrics), "---", "---"]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [head, rule, *body])


def _group(numbers: Sequence[PublishedNumber]) -> Mapping[tuple[str, str, str, str], dict[str, str]]:
    groups: dict[tuple[str, str, str, str], dict[str, str]] = {}
    for row in numbers:
        where = f"{row.source}, {row.location}" + (f" ({row.note})" if row.note else "")
        groups.setdefault((row.method, row.origin, row.failures, where), {})[row.metric] = _format(row.value)
    return groups


def _score(row: ResultRow) -> LocalizationScore:
    return score_ranking(row.ranking, [frozenset(names) for names in row.truth.causes], row.truth.candidates)


def _mean(scores: Sequence[LocalizationScore], metric: str) -> float:
    """Return the mean of a metric; 0 without scores. Any cause of a case counts as a hit."""
    values = {
        "AC@1": [score.hit(1) for score in scores],
        "AC@3": [score.hit(3) for score in scores],
        "AC@5": [score.hit(5) for score in scores],
        "Avg@5": [sum(score.hit(k) for k in range(1, 6)) / 5 for score in scores],
        "MRR": [score.reciprocal_rank for score in scores],
    }[metric]
    return sum(values) / len(values) if values else 0.0


def _format(value: float) -> str:
    return f"{value:.3f}"


if __name__ == "__main__":
    main()
