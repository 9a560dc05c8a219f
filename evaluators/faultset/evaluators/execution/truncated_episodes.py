"""Truncated copies of episodes: only the telemetry that was available at a given time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from faultset.core.processes import scratch
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, TELEMETRY, table_file
from faultset.datasets.format.storage import QUICK, write_parquet
from faultset.datasets.recordings.window_view import select_available_rows
from faultset.datasets.views import EpisodeView


class TruncatedCopies:
    """Truncated copies of one episode, each written on first use.

    Use it as a context manager, which removes the copies.
    """

    def __init__(self, episode: str) -> None:
        self.episode = episode
        """Folder of the original episode."""
        self._stack = contextlib.ExitStack()
        self._folders: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def until(self, end_ns: int) -> str:
        """Return the folder of the copy that ends at `end_ns`, UTC nanoseconds."""
        if end_ns not in self._folders:
            root = Path(self._stack.enter_context(scratch("cut")))
            self._folders[end_ns] = str(truncate_episode(Path(self.episode), end_ns, root))
        return self._folders[end_ns]


def truncate_episode(episode: Path, end_ns: int, root: Path) -> Path:
    """Write an episode as it was known at `end_ns` into `root/episodes/<id>`, and return that folder.

    Later rows are dropped. Spans that end later are absent, and requests that end later are unfinished, as at the end
    of every view. The files themselves are truncated, so no method can read past the end.

    Parameters
    ----------
    end_ns
        New end of the view, UTC nanoseconds; clipped to [end of the reference, end of the view].
    """
    view = EpisodeView(episode)
    context = view.context
    end_ns = max(context.reference_end_ns, min(end_ns, context.view_end_ns))
    folder = root / EPISODES / episode.name
    (folder / TELEMETRY).mkdir(parents=True)
    cut = dataclasses.replace(context, view_end_ns=end_ns)
    (folder / CONTEXT_FILE).write_text(cut.to_json(), encoding="utf-8")
    for name in view.tables:
        if (episode / table_file(name)).exists():
            table = select_available_rows(name, view.table(name), end_ns)
            write_parquet(folder / table_file(name), table, compression=QUICK)
    return folder


@contextlib.contextmanager
def copy_healthy_references(folders: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield copies of fault episodes that contain only their healthy reference."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(scratch("cut"))) if folders else Path()
        yield tuple(str(truncate_episode(Path(folder), 0, root)) for folder in folders)
