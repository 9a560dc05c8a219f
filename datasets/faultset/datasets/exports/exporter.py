"""Running an export: into a folder that appears only when everything is in it.

What it will take is said first. A layout that can compute its size does; of any other one, an episode of each
application is written for a trial.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, UsageError
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.plugins import load_plugin, require_class
from faultset.core.times import step_seconds
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.storage import translate_disk_full

GROUP = "faultset.exporters"
"""Entry-point group in which layouts are announced."""
MOST_BYTES = 2_000_000_000
"""An export that is expected to be larger is refused unless the caller allows more."""
_WRITTEN_BYTES_PER_S = 200e6
_TRIAL = ".trial"


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What an export is asked for."""

    step_s: float = 1.0
    """Length of a step of wide frames in seconds."""
    roles: Sequence[str] | None = None
    """Only metrics of these roles; all by default."""
    per_service: bool = False
    """Windows of each service in columns that all applications share, where the layout has windows."""


@dataclass(frozen=True, kw_only=True)
class ExportPlan:
    """What an export is expected to write and to take, before it begins."""

    faulty: int
    """Episodes with a fault."""
    healthy: int
    """Episodes without a fault."""
    expected_bytes: int
    """About how much is written."""
    expected_s: float
    """About how long it takes."""


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What an export has written."""

    episodes: int
    """How many episodes were written."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Episode -> why the layout cannot hold it."""


class ExportLayout(Protocol):
    """A layout to write; made with the dataset, what was chosen, and an empty folder.

    Two more methods may be there: `prepare(episode)`, called with every episode before any is written, and
    `expected_bytes(episodes)`, which computes the size of the whole export.
    """

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None: ...

    def unavailable_reason(self, episode: str) -> str | None:
        """Say why the layout cannot hold an episode; None when it can."""
        ...

    def write(self, episode: str) -> None:
        """Write one episode."""
        ...

    def finish(self) -> None:
        """Write what is about all episodes."""
        ...


def load_layout(name: str) -> type[ExportLayout]:
    """Return a layout; raise UsageError for a name that is not known or a plug-in that cannot be used."""
    return load_plugin(GROUP, name, kind="layout", accept=_accepted)


def _accepted(name: str, loaded: Any) -> type[ExportLayout]:
    require_class(loaded, "unavailable_reason", "write", "finish")
    return loaded


def export_dataset(
    name: str,
    root: Path | str,
    out: Path | str,
    *,
    version: str | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
    most_bytes: int | None = MOST_BYTES,
    announce: Callable[[ExportPlan], None] | None = None,
) -> ExportResult:
    """Write a version of a dataset in another layout.

    Parameters
    ----------
    name
        Layout, a name in the entry-point group `faultset.exporters`.
    root
        Dataset folder.
    out
        Target folder; must not exist or must be empty.
    version
        The newest by default.
    progress
        Called with the number of finished episodes and of all.
    most_bytes
        Refuse an export that is expected to be larger; None for no limit.
    announce
        Called with the plan before anything is written.

    Raises
    ------
    UsageError
        There is no such layout, an option makes no sense, or the export would be larger than `most_bytes`.
    DataError
        The dataset is damaged, the layout can hold none of its episodes, or `out` is not empty.
    """
    layout = load_layout(name)
    options = options or ExportOptions()
    step_seconds(options.step_s)
    if options.per_service and not getattr(layout, "has_services", False):
        raise UsageError(f"layout {name} has no rows for services; leave --per-service out, or export --as windows")
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "export") as folder:
        export = layout(dataset, options, folder)
        reasons = {episode: export.unavailable_reason(episode) for episode in dataset.episodes}
        left_out = {episode: reason for episode, reason in reasons.items() if reason is not None}
        episodes = [episode for episode in dataset.episodes if episode not in left_out]
        if not episodes:
            raise DataError(
                f"no episode of {dataset.root} fits the layout ({next(iter(left_out.values()), 'it has none')}); "
                "choose another layout"
            )
        trial = lambda place: layout(dataset, options, place)  # noqa: E731
        plan = _plan(export, trial, dataset, episodes, folder)
        if announce is not None:
            announce(plan)
        if most_bytes is not None and plan.expected_bytes > most_bytes:
            raise UsageError(
                f"the export takes about {plan.expected_bytes / 1e9:.1f} GB, more than the limit of "
                f"{most_bytes / 1e9:.1f} GB; choose fewer --roles or a longer --step, or allow it with --yes"
            )
        write_episodes(export, episodes, progress)
        return ExportResult(episodes=len(episodes), left_out=left_out)


def _plan(
    export: ExportLayout,
    trial: Callable[[Path], ExportLayout],
    dataset: Dataset,
    episodes: Sequence[str],
    folder: Path,
) -> ExportPlan:
    sample = first_of_each_app(dataset, episodes)
    share = _rows(dataset, episodes) / max(1, _rows(dataset, sample))
    began = time.perf_counter()
    if hasattr(export, "expected_bytes"):
        expected: int = export.expected_bytes(episodes)  # type: ignore[attr-defined]
        writing_s = expected / _WRITTEN_BYTES_PER_S
    else:
        expected, writing_s = round(_trial_bytes(trial, sample, folder / _TRIAL) * share), 0.0
    seconds = (time.perf_counter() - began) * share * len(_passes(export)) + writing_s
    faulty = sum(dataset.label(episode).is_faulty for episode in episodes)
    return ExportPlan(faulty=faulty, healthy=len(episodes) - faulty, expected_bytes=expected, expected_s=seconds)


def first_of_each_app(dataset: Dataset, episodes: Sequence[str]) -> list[str]:
    """Return the first episode of each application, from the training side of `by-episode` where it has one."""
    test = {*dataset.splits.get("by-episode", {}).get("test", ())}
    first: dict[str, str] = {}
    for episode in sorted(episodes, key=lambda episode: episode in test):
        first.setdefault(dataset.view(episode).context.app, episode)
    return list(first.values())


def _rows(dataset: Dataset, episodes: Sequence[str]) -> int:
    return sum(record.rows or 0 for episode in episodes for record in dataset.files[episode].values())


def _trial_bytes(trial: Callable[[Path], ExportLayout], episodes: Sequence[str], folder: Path) -> int:
    """Write some episodes into a folder that is removed again, and return their size."""
    folder.mkdir()
    try:
        write_episodes(trial(folder), episodes)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    finally:
        shutil.rmtree(folder)


def _passes(export: ExportLayout) -> list[Callable[[str], None]]:
    """Return what is called with every episode, one after the other."""
    prepare = getattr(export, "prepare", None)
    return [export.write] if prepare is None else [prepare, export.write]


def write_episodes(export: ExportLayout, episodes: Sequence[str], progress: Progress | None = None) -> None:
    """Write episodes that fit a layout, and what is about all of them; progress counts every pass."""
    passes = _passes(export)
    count = len(passes)
    shown = None if progress is None else lambda finished, total: progress(finished // count, total // count)
    steps = StepCounter(count * len(episodes), shown)
    for visit in passes:
        for episode in episodes:
            visit(episode)
            steps.add()
    export.finish()
