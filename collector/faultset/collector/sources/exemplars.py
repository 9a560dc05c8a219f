"""The source of exemplars, which link samples of a metric to traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from faultset.collector.sources.contract import ExemplarReader, SourceTarget
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.metrics.roles import MetricRole


class Exemplars:
    """Exemplars of metrics: single observations with the trace that caused them."""

    table = "exemplars"
    interval_s: float | None = None
    columns: ClassVar[Sequence[AddedColumn]] = (
        AddedColumn(name="service", type="string", nullable=True, meaning="workload that owns the pod"),
        AddedColumn(name="pod", type="string", nullable=True, meaning="pod name"),
        AddedColumn(name="metric", type="string", meaning="name of the series; native histograms have no suffix"),
        AddedColumn(name="labels", type="string", meaning="labels of the series as canonical JSON"),
        AddedColumn(name="value", type="double", meaning="the observed value"),
        AddedColumn(name="trace_id", type="text", nullable=True, meaning="trace of the observation"),
        AddedColumn(name="span_id", type="text", nullable=True, meaning="span of the observation"),
    )
    metric_roles: ClassVar[Sequence[MetricRole]] = ()

    def __init__(self, target: SourceTarget):
        self._target = target

    def start(self) -> None:
        """Do nothing; the metrics server keeps exemplars."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the exemplars of `[start_ns, end_ns)`.

        Raises
        ------
        PlatformError
            The platform's source of metrics does not read exemplars.
        """
        metrics = self._target.platform.sources.get("metrics")
        if not isinstance(metrics, ExemplarReader):
            raise PlatformError(
                "the metrics of this platform have no exemplars; leave --sources exemplars out, or collect on a "
                "cluster whose Prometheus stores them"
            )
        rows = [dict(row) for row in metrics.exemplars(start_ns, end_ns)]
        yield pa.RecordBatch.from_pylist(rows, schema=self._target.schema)

    def close(self) -> None:
        """Do nothing; nothing is open."""
