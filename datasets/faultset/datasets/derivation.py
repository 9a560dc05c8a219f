"""Derive versions and datasets: filter episodes, change splits, merge datasets."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, UsageError, unknown_name
from faultset.core.files import flush, translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.cards import write_card
from faultset.datasets.format.incidents import summarize_recording
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.recording import Recording

NO_FAULT = "none"
"""Name that selects episodes without a fault."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFilter:
    """Conditions on episodes; each is met by any of its values and ignored if it is empty.

    A recording meets a condition on faults, targets or verdicts if one of its incidents does. The fault and the verdict
    "none" match every recording.
    """

    apps: Sequence[str] = ()
    faults: Sequence[str] = ()
    targets: Sequence[str] = ()
    verdicts: Sequence[str] = ()
    platforms: Sequence[str] = ()
    episodes: Sequence[str] = ()
    """Ids of episodes or recordings."""


def filter_dataset(root: Path | str, conditions: EpisodeFilter, *, version: str | None = None) -> Dataset:
    """Create a version from the episodes that meet all conditions, and open it; no data is copied.

    Raises
    ------
    UsageError
        There is no condition, or a value matches no episode or recording.
    DataError
        No episode meets all conditions.
    """
    if conditions == EpisodeFilter():
        raise UsageError("a filter needs at least one condition; add for example --apps or --faults")
    dataset = open_dataset(root, version)
    selected = select_episodes(dataset, conditions)
    if not selected:
        raise DataError(
            f"no episode of {dataset.root} version {dataset.version} meets all conditions; leave out some of them"
        )
    source = {"version": dataset.version, "conditions": _drop_unset(conditions)}
    return _new_version(
        dataset,
        episodes=[name for name in selected if name in dataset],
        recordings=[name for name in selected if name in dataset.recording_files],
        bump="minor",
        provenance={"filtered_from": source},
    )


def select_episodes(dataset: Dataset, conditions: EpisodeFilter) -> list[str]:
    """Return the episodes and recordings that meet all conditions; raise UsageError for a value that matches none."""
    active = _drop_unset(conditions)
    values = {episode: _list_values(dataset, episode) for episode in dataset.episodes}
    values |= {recording.id: _list_recording_values(recording) for recording in dataset.recordings()}
    for name, names in active.items():
        present = {value for episode_values in values.values() for value in episode_values[name]}
        for value in names:
            if value not in present:
                raise unknown_name(name.removesuffix("s"), value, present)
    return [
        episode
        for episode, episode_values in values.items()
        if all(episode_values[name] & {*names} for name, names in active.items())
    ]


def _drop_unset(conditions: EpisodeFilter) -> dict[str, list[str]]:
    return {name: list(values) for name, values in asdict(conditions).items() if values}


def split_dataset(root: Path | str, *, seed: int, version: str | None = None) -> Dataset:
    """Create a version with the same episodes but new splits, and open it; the same seed gives the same splits."""
    dataset = open_dataset(root, version)
    source = {"version": dataset.version, "seed": seed}
    return _new_version(
        dataset,
        episodes=dataset.episodes,
        recordings=dataset.recorded_chunks,
        bump="patch",
        provenance={"split_from": source},
        seed=seed,
    )


def merge_datasets(roots: Sequence[Path | str], out: Path | str, *, progress: Progress | None = None) -> Dataset:
    """Copy the newest versions of two or more datasets into a new dataset folder, and open it.

    An episode or recording that several datasets share is copied once. Raise DataError if a dataset is damaged, or if
    two have different episodes with the same id.
    """
    if len(roots) < 2:
        raise UsageError(f"a merge needs at least two datasets, got {len(roots)}; name them all, then the new folder")
    datasets = [open_dataset(root) for root in roots]
    owners: dict[str, Dataset] = {}
    for dataset in datasets:
        for name, files in dataset.version_file.units().items():
            other = owners.setdefault(name, dataset)
            if other.version_file.units()[name] != files:
                raise DataError(
                    f"{other.root} and {dataset.root} have different data below {name}; "
                    'leave one out with "faultset dataset filter"'
                )
    for dataset in datasets:
        dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "merge") as folder:
        steps = StepCounter(len(owners), progress)
        for name, dataset in owners.items():
            copy_unit(dataset, name, folder)
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
            recordings={
                recording.id: summarize_recording(recording.path, dataset.recorded_chunks[recording.id])
                for recording in dataset.recordings()
            },
        )
    return dataset.root / "README.md"


def _list_values(dataset: Dataset, episode: str) -> dict[str, set[str]]:
    label, context = dataset.label(episode), dataset.view(episode).context
    return {
        "apps": {context.app},
        "faults": {*label.fault_names, label.fault or NO_FAULT},
        "targets": set(label.targets),
        "verdicts": {label.verdict},
        "platforms": {context.platform},
        "episodes": {episode},
    }


def _list_recording_values(recording: Recording[Dataset]) -> dict[str, set[str]]:
    incidents = recording.truth.incidents
    return {
        "apps": {recording.context.app},
        "faults": {NO_FAULT, *(name for incident in incidents for name in incident.fault_names)},
        "targets": {target for incident in incidents for target in incident.targets},
        "verdicts": {NO_FAULT, *(incident.verdict for incident in incidents)},
        "platforms": {recording.context.platform},
        "episodes": {recording.id},
    }


def _new_version(
    dataset: Dataset,
    *,
    episodes: Iterable[str],
    recordings: Iterable[str],
    bump: Any,
    provenance: dict[str, Any],
    seed: int = 0,
) -> Dataset:
    with translate_write_errors(dataset.root):
        version = create_version(
            dataset.root,
            episodes=episodes,
            recordings={name: dataset.recorded_chunks[name] for name in recordings},
            bump=bump,
            provenance=dict(dataset.provenance) | provenance,
            split_seed=seed,
        )
    return open_dataset(dataset.root, version)


def copy_unit(dataset: Dataset, unit: str, folder: Path) -> None:
    """Copy the files of an episode or recording, such as `recordings/<id>`, into a new dataset folder."""
    for name in dataset.version_file.units()[unit]:
        target = folder / unit / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(dataset.root / unit / name, target)
        flush(target)
