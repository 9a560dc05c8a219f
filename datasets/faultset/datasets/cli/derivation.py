"""`faultset dataset filter`, `split`, `merge`, `compact` and `card`: derive versions and datasets."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import command, json_option, list_option
from faultset.core.output import show_json
from faultset.core.printable import list_counts
from faultset.datasets.cli.versions import dataset_argument, version_option

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset


@command("filter")
@dataset_argument
@list_option("--apps", help="Applications to keep.")
@list_option("--faults", help='Faults to keep; "none" keeps episodes without a fault.')
@list_option("--targets", help="Targets of the faults to keep.")
@list_option("--verdicts", help="Verdicts to keep.")
@list_option("--platforms", help="Platforms to keep.")
@list_option("--episodes", metavar="IDS", help="Episodes to keep.")
@version_option
@json_option
def filter_(dataset: Path, version: str | None, as_json: bool, **conditions: tuple[str, ...]) -> None:
    """Create a version of DATASET from the episodes that meet all conditions; no data is copied.

    If an option has several comma-separated values, an episode must have one of them. The new version gets new splits.

    \b
    Example:
      faultset dataset filter faultset-data/ --apps hotel --verdicts manifest,none
    """
    from faultset.datasets.derivation import EpisodeFilter, filter_dataset

    _print_version(filter_dataset(dataset, EpisodeFilter(**conditions), version=version), as_json)


@command()
@dataset_argument
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Seed; 0 gives the same splits as collect.")
@version_option
@json_option
def split(dataset: Path, seed: int, version: str | None, as_json: bool) -> None:
    """Create a version of DATASET with the same episodes and new splits.

    \b
    Example:
      faultset dataset split faultset-data/ --seed 7
    """
    from faultset.datasets.derivation import split_dataset

    _print_version(split_dataset(dataset, seed=seed, version=version), as_json)


@command()
@click.argument("datasets", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DATASET...")
@click.argument("out", type=click.Path(path_type=Path))
@json_option
def merge(datasets: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Copy the newest versions of several datasets into the new dataset folder OUT.

    \b
    Example:
      faultset dataset merge monday/ tuesday/ week/
    """
    from faultset.core.output import report_progress
    from faultset.datasets.derivation import merge_datasets

    with report_progress("episodes") as progress:
        merged = merge_datasets(datasets, out, progress=progress)
    _print_version(merged, as_json)


@command()
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--traces",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Share of the traces whose spans are kept.",
)
@version_option
@json_option
def compact(dataset: Path, out: Path, traces: float, version: str | None, as_json: bool) -> None:
    """Write a smaller copy of DATASET to the new folder OUT.

    Numbers that are unique in OUT replace the random ids of traces and spans, both in spans and in log lines. With
    --traces, only the spans of a share of the traces are kept; in log lines, the ids of the other traces begin with f.
    Nothing else changes.

    \b
    Example:
      faultset dataset compact faultset-data/ small-data/ --traces 0.3
    """
    from faultset.core.output import report_progress
    from faultset.datasets.compaction import compact_dataset

    with report_progress("episodes") as progress:
        compacted = compact_dataset(dataset, out, traces=traces, version=version, progress=progress)
    _print_version(compacted, as_json)


@command(short_help="Write the dataset card of a version.")
@dataset_argument
@version_option
def card(dataset: Path, version: str | None) -> None:
    """Write the dataset card README.md for a version of DATASET; the text below the marker in the file is kept.

    \b
    Example:
      faultset dataset card faultset-data/ --version 1.0.0
    """
    from faultset.datasets.derivation import write_dataset_card

    click.echo(f"Wrote {write_dataset_card(dataset, version=version)}.")


def _print_version(dataset: Dataset, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "dataset": str(dataset.root),
        "version": dataset.version,
        "episodes": len(dataset.episodes),
        "recordings": len(dataset.recording_files),
    }
    facts["splits"] = {
        name: {subset: len(ids) for subset, ids in subsets.items()} for name, subsets in dataset.splits.items()
    }
    if as_json:
        show_json(facts)
        return
    content = list_counts(episode=len(dataset.episodes), recording=len(dataset.recording_files))
    click.echo(f"Version {dataset.version} of {dataset.root}: {content}.")
    click.echo(f"Next:\n  faultset dataset show {shlex.quote(str(dataset.root))}")
