"""Export a dataset into a folder that appears only when it is complete.

The size of an export is estimated first. If the layout cannot compute it, one episode of each application is written as
a trial.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, UsageError
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.core.plugins import load_plugin, require_class
from faultset.core.times import step_seconds
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.storage import translate_disk_full

GROUP = "faultset.exporters"
"""Entry-point group of layouts."""
MAX_BYTES = 2_000_000_000
"""Default limit of an export's expected size."""
_WRITTEN_BYTES_PER_S, _RECORDING_BYTES_PER_S = 200e6, 10e6
_TRIAL = ".trial"
SPLIT = "by-episode"
SUBSETS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of an export."""

    step_s: float = 1.0
    """Length of a step of wide frames in seconds."""
    roles: Sequence[str] | None = None
    """Roles of the metrics to export; all by default."""
    per_service: bool = False
    """Whether layouts with windows write a window per service, with columns that all applications share."""


@dataclass(frozen=True, kw_only=True)
class ExportPlan:
    """Expected size and duration of an export."""

    faulty: int
    """Number of episodes with a fault."""
    healthy: int
    """Number of episodes without a fault."""
    recordings: int
    """Number of recordings."""
    expected_bytes: int
    """Estimated size."""
    expected_s: float
    """Estimated duration."""


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """Result of an export."""

    episodes: int
    """Number of written episodes."""
    recordings: int
    """Number of written recordings."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Episode or recording -> reason why the layout does not support it."""
    opening: str = ""
    """Command that opens the export; empty if the layout has none."""


class ExportLayout:
    """Base class of layouts, built from the dataset, the options and an empty folder.

    Two more methods are optional: `prepare(episode)`, called with every episode before any is written, and
    `expected_bytes(episodes)`, which returns the size of the export.

    Attributes
    ----------
    opening
        Command that opens the export, with `{out}` for its folder; may be empty.
    """

    opening = ""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self.dataset = dataset
        self.options = options
        self.folder = folder
        self._test = set(dataset.splits.get(SPLIT, {}).get("test", ()))

    def find_subset(self, episode: str) -> str:
        """Return the subset of an episode in the split `by-episode`; `train` without that split."""
        return "test" if episode in self._test else "train"

    def unavailable_reason(self, episode: str) -> str | None:
        """Return why the layout does not support an episode, or None."""
        return None

    def write(self, episode: str) -> None:
        """Write an episode."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write files that cover all episodes."""


class RecordingLayout(ExportLayout):
    """Base class of layouts that also hold recordings."""

    def unavailable_recording_reason(self, recording: str) -> str | None:
        """Return why the layout does not support a recording, or None."""
        return None

    def write_recording(self, recording: str) -> None:
        """Write a recording."""
        raise NotImplementedError

    def recording_bytes(self, recordings: Sequence[str]) -> int:
        """Estimate the size of recordings in this layout."""
        raise NotImplementedError


def load_layout(name: str) -> type[ExportLayout]:
    """Return a layout; raise UsageError for an unknown name or an invalid plug-in."""
    return load_plugin(GROUP, name, kind="layout", accept=_check_layout)


def _check_layout(name: str, plugin: Any) -> type[ExportLayout]:
    require_class(plugin, "unavailable_reason", "write", "finish")
    return plugin


def export_dataset(
    name: str,
    root: Path | str,
    out: Path | str,
    *,
    version: str | None = None,
    options: ExportOptions | None = None,
    progress: Progress | None = None,
    max_bytes: int | None = MAX_BYTES,
    announce: Callable[[ExportPlan], None] | None = None,
) -> ExportResult:
    """Write a version of a dataset in a different layout.

    Parameters
    ----------
    name
        Layout, a name in the entry-point group `faultset.exporters`.
    root
        Dataset folder.
    out
        Target folder; must not exist or must be empty.
    version
        Name of the version; the newest by default.
    progress
        Called with the number of finished episodes and the total.
    max_bytes
        Maximum expected size; a larger export is refused. None for no limit.
    announce
        Called with the plan before anything is written.

    Raises
    ------
    UsageError
        The layout is unknown, an option is invalid, or the expected size exceeds `max_bytes`.
    DataError
        The dataset is damaged, the layout supports none of its episodes, or `out` is not empty.
    """
    layout = load_layout(name)
    options = options or ExportOptions()
    step_seconds(options.step_s)
    if options.per_service and not getattr(layout, "has_services", False):
        raise UsageError(f"--per-service needs a layout with windows, not {name}; leave it out or export --as windows")
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "export") as folder:
        export = layout(dataset, options, folder)
        left_out = _find_reasons(export, dataset)
        episodes = [episode for episode in dataset.episodes if episode not in left_out]
        recordings = [recording for recording in dataset.recording_files if recording not in left_out]
        if not episodes and not recordings:
            raise DataError(
                f"the layout {name} supports no episode or recording of {dataset.root} "
                f"({next(iter(left_out.values()), 'it is empty')}); choose another layout"
            )
        plan = _build_plan(export, partial(layout, dataset, options), dataset, episodes, recordings, folder)
        if announce is not None:
            announce(plan)
        if max_bytes is not None and plan.expected_bytes > max_bytes:
            raise UsageError(
                f"the export would take about {plan.expected_bytes / 1e9:.1f} GB, more than the limit of "
                f"{max_bytes / 1e9:.1f} GB; choose fewer --roles or a longer --step, or allow it with --yes"
            )
        write_episodes(export, episodes, progress, recordings)
        return ExportResult(
            episodes=len(episodes),
            recordings=len(recordings),
            left_out=left_out,
            opening=getattr(layout, "opening", "").replace("{out}", shlex.quote(str(out))),
        )


def _find_reasons(export: ExportLayout, dataset: Dataset) -> dict[str, str]:
    """Return why episodes and recordings are left out."""
    reasons = {episode: export.unavailable_reason(episode) for episode in dataset.episodes}
    for recording in dataset.recording_files:
        if isinstance(export, RecordingLayout):
            reasons[recording] = export.unavailable_recording_reason(recording)
        else:
            reasons[recording] = "the layout holds only episodes; cut the recording with Recording.episodes"
    return {unit: reason for unit, reason in reasons.items() if reason is not None}


def _build_plan(
    export: ExportLayout,
    trial: Callable[[Path], ExportLayout],
    dataset: Dataset,
    episodes: Sequence[str],
    recordings: Sequence[str],
    folder: Path,
) -> ExportPlan:
    sample = select_first_of_each_app(dataset, episodes)
    share = _count_rows(dataset, episodes) / max(1, _count_rows(dataset, sample))
    started = time.perf_counter()
    if not episodes:
        expected, writing_s = 0, 0.0
    elif hasattr(export, "expected_bytes"):
        expected: int = export.expected_bytes(episodes)  # type: ignore[attr-defined]
        writing_s = expected / _WRITTEN_BYTES_PER_S
    else:
        expected, writing_s = round(_measure_trial_bytes(trial, sample, folder / _TRIAL) * share), 0.0
    seconds = (time.perf_counter() - started) * share * len(_passes(export)) + writing_s
    if recordings and isinstance(export, RecordingLayout):
        size = export.recording_bytes(recordings)
        expected, seconds = expected + size, seconds + size / _RECORDING_BYTES_PER_S
    faulty = sum(dataset.label(episode).is_faulty for episode in episodes)
    return ExportPlan(
        faulty=faulty,
        healthy=len(episodes) - faulty,
        recordings=len(recordings),
        expected_bytes=expected,
        expected_s=seconds,
    )


def select_first_of_each_app(dataset: Dataset, episodes: Sequence[str]) -> list[str]:
    """Return the first episode of each application, preferring the training subset of `by-episode`."""
    test = {*dataset.splits.get(SPLIT, {}).get("test", ())}
    first: dict[str, str] = {}
    for episode in sorted(episodes, key=lambda episode: episode in test):
        first.setdefault(dataset.view(episode).context.app, episode)
    return list(first.values())


def _count_rows(dataset: Dataset, episodes: Sequence[str]) -> int:
    return sum(record.rows or 0 for episode in episodes for record in dataset.files[episode].values())


def _measure_trial_bytes(trial: Callable[[Path], ExportLayout], episodes: Sequence[str], folder: Path) -> int:
    """Write episodes into a temporary folder and return their size."""
    folder.mkdir()
    try:
        write_episodes(trial(folder), episodes)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    finally:
        shutil.rmtree(folder)


def _passes(export: ExportLayout) -> list[Callable[[str], None]]:
    """Return the functions that the export calls with every episode, in order."""
    prepare = getattr(export, "prepare", None)
    return [export.write] if prepare is None else [prepare, export.write]


def write_episodes(
    export: ExportLayout,
    episodes: Sequence[str],
    progress: Progress | None = None,
    recordings: Sequence[str] = (),
) -> None:
    """Write episodes and recordings, then the files that cover all of them; each pass advances the progress equally."""
    passes = _passes(export)
    count = len(passes)
    scaled = None if progress is None else lambda finished, total: progress(finished // count, total // count)
    steps = StepCounter(count * (len(episodes) + len(recordings)), scaled)
    for visit in passes:
        for episode in episodes:
            visit(episode)
            steps.add()
    if isinstance(export, RecordingLayout):
        for recording in recordings:
            export.write_recording(recording)
            steps.add(count)
    export.finish()
