"""What a method may know of an episode, of one that has ended and of one under way."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.episodes.records import EpisodeRecord, ViewBounds
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.sources.contract import EarlyReader
from faultset.collector.sources.recorder import SourceRows
from faultset.core.times import step_seconds
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.metrics.roles import known_roles
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


def episode_context(
    record: EpisodeRecord, platform: EpisodePlatform, bounds: ViewBounds, added: Sequence[SourceRows] = ()
) -> EpisodeContext:
    """Return what is known beforehand of an episode with the given view; `added` is of added sources."""
    plan, app = record.plan, platform.app
    return EpisodeContext(
        episode=plan.episode,
        app=plan.app,
        platform=plan.platform,
        view_start_ns=bounds.start_ns,
        view_end_ns=bounds.end_ns,
        reference_end_ns=bounds.reference_end_ns,
        source_intervals_s={name: source.interval_s for name, source in platform.sources.items()}
        | {one.spec.table: one.interval_s for one in added if one.spec.added_table},
        services=tuple(app.services),
        calls=tuple(app.calls),
        workload_entry=app.entry[0],
        metric_roles=tuple(asdict(role) for one in added for role in one.spec.metric_roles),
        added_tables=tuple(one.spec.added_table for one in added if one.spec.added_table),
        workload=workload(plan),
        stores=record.store_servers,
    )


def workload(plan: Plan) -> dict[str, Any]:
    """Return what the load of an episode is."""
    return {"mix": plan.mix, "rate_rps": plan.rate_rps, **plan.traffic.as_record()}


def recorded_rows(platform: EpisodePlatform, table: str, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that were known at the end of a window."""
    for batch in platform.sources[table].snapshot(start_ns, end_ns) if table in platform.sources else ():
        yield finished(batch, end_ns) if table == "spans" else batch


def read_early(platform: EpisodePlatform, bounds: ViewBounds, fault_ns: int | None) -> None:
    """Begin to read what was recorded before the fault; within the view nothing else may use the platform."""
    for source in platform.sources.values():
        if isinstance(source, EarlyReader):
            source.read_early(bounds.start_ns, bounds.end_ns, fault_ns or bounds.end_ns)


def finished(batch: pa.RecordBatch, end_ns: int) -> pa.RecordBatch:
    """Keep the spans that had ended by the end of the view: a later end would tell when the fault was undone."""
    ends = batch["time"].cast(pa.int64()).to_numpy() + batch["duration_ns"].to_numpy()
    return batch.filter(pa.array(ends < end_ns))


class LiveRecording:
    """What has been recorded of an episode that goes on.

    Parameters
    ----------
    bounds
        Returns the view's bounds, given its end.
    folder
        Where tables lie while somebody looks at them; a new one at the first look when None.
    """

    def __init__(
        self,
        record: EpisodeRecord,
        platform: EpisodePlatform,
        bounds: Callable[[int], ViewBounds],
        folder: Path | None = None,
    ):
        self._record, self._platform, self._bounds, self._folder = record, platform, bounds, folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._writer: EpisodeWriter | None = None

    def up_to(self, now_ns: int) -> EpisodeView:
        """Return the view that ends now; the one before can no longer be read."""
        self.close()
        self._scratch = tempfile.TemporaryDirectory(prefix="faultset-live-", dir=self._folder)
        self._writer = EpisodeWriter(self._scratch.name, self._record.plan.episode, quick=True).__enter__()
        bounds = self._bounds(now_ns)
        self._writer.write_context(episode_context(self._record, self._platform, bounds))
        return _LazyView(
            self._writer, lambda table: recorded_rows(self._platform, table, bounds.start_ns, bounds.end_ns)
        )

    def close(self) -> None:
        """Remove what the last view read from."""
        if self._writer is not None:
            self._writer.__exit__(None, None, None)
        if self._scratch is not None:
            self._scratch.cleanup()
        self._writer = self._scratch = None


class _LazyView(EpisodeView):
    """A view whose tables are written when they are asked for."""

    def __init__(self, writer: EpisodeWriter, rows: Callable[[str], Iterable[pa.RecordBatch]]):
        super().__init__(writer.folder)
        self._writer, self._rows = writer, rows
        self._made: set[str] = set()

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        filters: pc.Expression | list[Any] | None = None,
    ) -> pa.Table:
        self._schema(name)
        self._make(name)
        return super().table(name, columns, filters)

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        self._make("metrics")
        return self._made_wide(step_seconds(step_s), None if roles is None else known_roles(roles))

    def _make(self, name: str) -> None:
        if name not in self._made:
            self._writer.write_table(name, self._rows(name))
            self._made.add(name)
