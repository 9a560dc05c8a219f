"""`faultset dataset filter`, `split`, `merge`, `compact` and `card`: versions and datasets made of others."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json
from faultset.datasets.cli.versions import dataset_argument, version_option

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset


@command("filter")
@dataset_argument
@click.option("--app", "apps", multiple=True, metavar="APP", help="Application. Repeatable.")
@click.option("--fault", "faults", multiple=True, metavar="FAULT", help="Fault, or none for no fault. Repeatable.")
@click.option("--target", "targets", multiple=True, metavar="SERVICE", help="Target of the fault. Repeatable.")
@click.option("--verdict", "verdicts", multiple=True, metavar="VERDICT", help="Verdict. Repeatable.")
@click.option("--platform", "platforms", multiple=True, metavar="PLATFORM", help="Platform. Repeatable.")
@click.option("--episode", "episodes", multiple=True, metavar="ID", help="Episode. Repeatable.")
@version_option
@json_option
def filter_(dataset: Path, version: str | None, as_json: bool, **conditions: tuple[str, ...]) -> None:
    """Make a new version of those episodes of DATASET that meet all conditions; no data is copied.

    An option that is given several times is met by any of its values. The new version has splits of its own.

    \b
    Example:
      faultset dataset filter faultset-data/ --app hotel --verdict manifest --verdict none
    """
    from faultset.datasets.derivation import EpisodeFilter, filter_dataset

    _tell(filter_dataset(dataset, EpisodeFilter(**conditions), version=version), as_json)


@command()
@dataset_argument
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Seed; 0 gives the splits that collect makes.")
@version_option
@json_option
def split(dataset: Path, seed: int, version: str | None, as_json: bool) -> None:
    """Make a new version of the same episodes of DATASET divided into training and test sides by another seed.

    \b
    Example:
      faultset dataset split faultset-data/ --seed 7
    """
    from faultset.datasets.derivation import split_dataset

    _tell(split_dataset(dataset, seed=seed, version=version), as_json)


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
    from faultset.core.command_line.progress import reported
    from faultset.datasets.derivation import merge_datasets

    with reported("episodes") as progress:
        made = merge_datasets(datasets, out, progress=progress)
    _tell(made, as_json)


@command()
@click.argument("dataset", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--traces",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the traces whose spans are kept.",
)
@version_option
@json_option
def compact(dataset: Path, out: Path, traces: float, version: str | None, as_json: bool) -> None:
    """Write DATASET in less space to the new folder OUT.

    Random ids of traces and spans become numbers, the same in spans and in lines of logs, and unique in OUT. With
    --traces only spans of a share of the traces are kept, and the ids in lines of the others begin with f. Everything
    else stays as it is.

    \b
    Example:
      faultset dataset compact faultset-data/ small-data/ --traces 0.3
    """
    from faultset.core.command_line.progress import reported
    from faultset.datasets.compaction import compact_dataset

    with reported("episodes") as progress:
        made = compact_dataset(dataset, out, traces=traces, version=version, progress=progress)
    _tell(made, as_json)


@command()
@dataset_argument
@version_option
def card(dataset: Path, version: str | None) -> None:
    """Write the card of DATASET, its README.md, for a version; text that you added below its marker is kept.

    \b
    Example:
      faultset dataset card faultset-data/ --version 1.0.0
    """
    from faultset.datasets.derivation import write_dataset_card

    click.echo(f"{write_dataset_card(dataset, version=version)} is written.")


def _tell(made: Dataset, as_json: bool) -> None:
    facts: dict[str, Any] = {"dataset": str(made.root), "version": made.version, "episodes": len(made.episodes)}
    facts["splits"] = {name: {side: len(ids) for side, ids in sides.items()} for name, sides in made.splits.items()}
    if as_json:
        show_json(facts)
        return
    noun = "episode" if len(made.episodes) == 1 else "episodes"
    click.echo(f"Version {made.version} of {made.root}: {len(made.episodes)} {noun}.")
    click.echo(f"Next:\n  faultset dataset show {shlex.quote(str(made.root))}")
