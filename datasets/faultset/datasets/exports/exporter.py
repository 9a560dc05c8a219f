"""Running an export: into a folder that appears only when everything is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, UsageError
from faultset.core.files import translate_write_errors
from faultset.core.locks.new_folder import new_folder
from faultset.core.plugins import load_plugin, require_class
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.storage import translate_disk_full

GROUP = "faultset.exporters"
"""Entry-point group in which layouts are announced."""
SHORTEST_STEP_S, LONGEST_STEP_S = 0.001, 86_400.0


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What an export is asked for."""

    step_s: float = 1.0
    """Length of a step of wide frames in seconds."""
    roles: Sequence[str] | None = None
    """Only metrics of these roles; all by default."""


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What an export has written."""

    episodes: int
    """How many episodes were written."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Episode -> why the layout cannot hold it."""


class ExportLayout(Protocol):
    """A layout to write; made with the dataset, what was chosen, and an empty folder."""

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
) -> ExportResult:
    """Write a version of a dataset in another layout.

    Parameters
    ----------
    name
        Layout, a name in the entry-point group `faultset.exporters`.
    root
        Dataset folder.
    out
        Folder to make; it must not exist, or be empty.
    version
        The newest by default.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    UsageError
        There is no such layout, or an option makes no sense.
    DataError
        The dataset is damaged, the layout can hold none of its episodes, or `out` holds something.
    """
    layout = load_layout(name)
    options = options or ExportOptions()
    if not SHORTEST_STEP_S <= options.step_s <= LONGEST_STEP_S:
        raise UsageError(
            f"a step of {options.step_s:g} s was asked for, wanted are {SHORTEST_STEP_S:g} s to {LONGEST_STEP_S:g} s; "
            "give for instance --step 1s"
        )
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "export") as folder:
        return _written(layout(dataset, options, folder), dataset, progress)


def _written(export: ExportLayout, dataset: Dataset, progress: Progress | None) -> ExportResult:
    left_out = {}
    steps = StepCounter(len(dataset.episodes), progress)
    for episode in dataset.episodes:
        reason = export.unavailable_reason(episode)
        if reason is None:
            export.write(episode)
        else:
            left_out[episode] = reason
        steps.add()
    if len(left_out) == len(dataset.episodes):
        raise DataError(
            f"no episode of {dataset.root} fits the layout ({next(iter(left_out.values()))}); choose another layout"
        )
    export.finish()
    return ExportResult(episodes=len(dataset.episodes) - len(left_out), left_out=left_out)
