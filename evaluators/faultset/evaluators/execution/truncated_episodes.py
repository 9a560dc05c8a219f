"""Truncated copies of episodes: only the telemetry that was available at a given time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as arrow_compute

from faultset.core.processes import scratch
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, TELEMETRY, table_file
from faultset.datasets.format.schemas import TIME, time_column
from faultset.datasets.format.storage import QUICK, write_parquet
from faultset.datasets.views import EpisodeView

pc: Any = arrow_compute
UNFINISHED = "unfinished"


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


def select_available_rows(name: str, table: pa.Table, end_ns: int) -> pa.Table:
    """Return the rows of a table that were available at `end_ns`, UTC nanoseconds."""
    end = pa.scalar(end_ns, type=TIME)
    times = table[time_column(name)]
    table = table.filter(pc.less(times, end))
    if name == "spans":
        ended = pc.add(table["time"].cast(pa.int64()), table["duration_ns"])
        return table.filter(pc.less(ended, end_ns))
    if name != "requests":
        return table
    scheduled = table["scheduled"].cast(pa.int64())
    answered = pc.add(scheduled, pc.fill_null(table["latency_ns"], 0))
    late = pc.fill_null(pc.greater_equal(answered, end_ns), False)
    for column in ("latency_ns", "status"):
        table = _replace_column(
            table, column, pc.if_else(late, pa.scalar(None, table.schema.field(column).type), table[column])
        )
    table = _replace_column(
        table, "sent", pc.if_else(pc.less(table["sent"], end), table["sent"], pa.scalar(None, TIME))
    )
    outcome = pc.if_else(late, UNFINISHED, table["outcome"].cast(pa.string()))
    return _replace_column(table, "outcome", outcome)


def _replace_column(table: pa.Table, column: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    field = table.schema.field(column)
    if pa.types.is_dictionary(field.type):
        encoded = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        values = encoded.cast(field.type.value_type).dictionary_encode()
    return table.set_column(table.schema.get_field_index(column), field, values.cast(field.type))


@contextlib.contextmanager
def copy_healthy_references(folders: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield copies of fault episodes that contain only their healthy reference."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(scratch("cut"))) if folders else Path()
        yield tuple(str(truncate_episode(Path(folder), 0, root)) for folder in folders)
