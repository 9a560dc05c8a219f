"""Derive versions and datasets: filter episodes, change splits, merge datasets."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, UsageError
from faultset.core.files import flush, translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.suggestions import unknown_name
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.cards import write_card
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version

NO_FAULT = "none"
"""Name that selects episodes without a fault."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFilter:
    """Conditions on episodes: an episode must have one of the values of each; empty conditions are ignored."""

    apps: Sequence[str] = ()
    """Names of applications."""
    faults: Sequence[str] = ()
    """Names of faults, or "none"."""
    targets: Sequence[str] = ()
    """Targets of the fault."""
    verdicts: Sequence[str] = ()
    """Verdicts; "none" for episodes without a fault."""
    platforms: Sequence[str] = ()
    """Names of platforms."""
    episodes: Sequence[str] = ()
    """Ids."""


def filter_dataset(root: Path | str, conditions: EpisodeFilter, *, version: str | None = None) -> Dataset:
    """Create a version from the episodes that meet all conditions, and open it; no data is copied.

    Parameters
    ----------
    root
        Dataset folder.
    version
        Version to select from; by default the newest.

    Raises
    ------
    UsageError
        There is no condition, or no episode has one of the values.
    DataError
        No episode meets all conditions.
    """
    if conditions == EpisodeFilter():
        raise UsageError("a filter needs at least one condition; give for instance --apps or --faults")
    dataset = open_dataset(root, version)
    episodes = select_episodes(dataset, conditions)
    if not episodes:
        raise DataError(
            f"no episode of {dataset.root} version {dataset.version} meets all conditions; leave out some of them"
        )
    source = {"version": dataset.version, "conditions": _drop_unset(conditions)}
    return _new_version(dataset, episodes=episodes, bump="minor", provenance={"filtered_from": source})


def select_episodes(dataset: Dataset, conditions: EpisodeFilter) -> list[str]:
    """Return the episodes that meet all conditions; raise UsageError for a value that no episode has."""
    active = _drop_unset(conditions)
    values = {episode: _values(dataset, episode) for episode in dataset.episodes}
    for name, names in active.items():
        present = {value for of_episode in values.values() for value in of_episode[name]}
        for value in names:
            if value not in present:
                raise unknown_name(name.removesuffix("s"), value, present)
    return [
        episode
        for episode, of_episode in values.items()
        if all(of_episode[name] & {*names} for name, names in active.items())
    ]


def _drop_unset(conditions: EpisodeFilter) -> dict[str, list[str]]:
    return {name: list(values) for name, values in asdict(conditions).items() if values}


def split_dataset(root: Path | str, *, seed: int, version: str | None = None) -> Dataset:
    """Create a version with the same episodes but new splits, and open it.

    Parameters
    ----------
    root
        Dataset folder.
    seed
        Seed of the shuffling; equal seeds give equal splits.
    version
        Version to split; by default the newest.
    """
    dataset = open_dataset(root, version)
    source = {"version": dataset.version, "seed": seed}
    return _new_version(dataset, episodes=dataset.episodes, bump="patch", provenance={"split_from": source}, seed=seed)


def merge_datasets(roots: Sequence[Path | str], out: Path | str, *, progress: Progress | None = None) -> Dataset:
    """Copy the newest versions of several datasets into a new dataset, and open it.

    An episode that several datasets share is copied once.

    Parameters
    ----------
    roots
        Two or more dataset folders.
    out
        Target folder; must not exist or must be empty.
    progress
        Called with the number of finished and of all episodes.

    Raises
    ------
    DataError
        A dataset is damaged, or two datasets have different episodes with the same id.
    """
    if len(roots) < 2:
        raise UsageError(f"a merge needs at least two datasets, got {len(roots)}; name them all, then the new folder")
    datasets = [open_dataset(root) for root in roots]
    owners: dict[str, Dataset] = {}
    for dataset in datasets:
        for episode in dataset.episodes:
            other = owners.setdefault(episode, dataset)
            if other.files[episode] != dataset.files[episode]:
                raise DataError(
                    f"{other.root} and {dataset.root} have different episodes with the id {episode}; "
                    'leave one out with "faultset dataset filter"'
                )
    for dataset in datasets:
        dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "merge") as folder:
        steps = StepCounter(len(owners), progress)
        for episode, dataset in owners.items():
            _copy(dataset, episode, folder)
            steps.add()
        sources = [
            {"name": source.root.resolve().name, "version": source.version, "provenance": dict(source.provenance)}
            for source in datasets
        ]
        synthetic = any(source.provenance.get("synthetic") for source in datasets)
        create_version(folder, provenance={"merged_from": sources} | ({"synthetic": True} if synthetic else {}))
    return open_dataset(out)


def write_dataset_card(root: Path | str, *, version: str | None = None) -> Path:
    """Write the dataset's card for a version, by default the newest; text below its marker is kept."""
    dataset = open_dataset(root, version)
    contexts = {episode: dataset.view(episode).context for episode in dataset.episodes}
    added = {table.name: table for context in contexts.values() for table in context.added_tables}
    with translate_write_errors(dataset.root / "README.md"):
        write_card(
            dataset.root,
            dataset.version_file,
            {episode: dataset.label(episode) for episode in dataset.episodes},
            {episode: context.app_title for episode, context in contexts.items()},
            added_tables=list(added.values()),
        )
    return dataset.root / "README.md"


def _values(dataset: Dataset, episode: str) -> dict[str, set[str]]:
    label, context = dataset.label(episode), dataset.view(episode).context
    return {
        "apps": {context.app},
        "faults": {*label.fault_names, label.fault or NO_FAULT},
        "targets": set(label.targets),
        "verdicts": {label.verdict},
        "platforms": {context.platform},
        "episodes": {episode},
    }


def _new_version(
    dataset: Dataset, *, episodes: Iterable[str], bump: Any, provenance: dict[str, Any], seed: int = 0
) -> Dataset:
    with translate_write_errors(dataset.root):
        version = create_version(
            dataset.root,
            episodes=episodes,
            bump=bump,
            provenance=dict(dataset.provenance) | provenance,
            split_seed=seed,
        )
    return open_dataset(dataset.root, version)


def _copy(dataset: Dataset, episode: str, folder: Path) -> None:
    for name in dataset.files[episode]:
        target = folder / EPISODES / episode / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(dataset.path(episode) / name, target)
        flush(target)
