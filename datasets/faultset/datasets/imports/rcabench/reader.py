"""One datapack as an episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import read_parquet
from faultset.datasets.imports.contract import ForeignEpisode
from faultset.datasets.imports.rcabench.discovery import (
    CONCLUSION,
    ENVIRONMENT,
    INJECTION,
    KINDS,
    clock_of,
    stage_files,
    stamps_ns,
    windows_of,
)
from faultset.datasets.imports.rcabench.labels import label_of
from faultset.datasets.imports.rcabench.roles import METRIC_ROLES
from faultset.datasets.imports.rcabench.rows import histogram_rows, log_rows, sample_rows, span_rows
from faultset.datasets.imports.windows import reference_end

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_APPS = ("ts-", "train-ticket")
_ENTRIES = ("ts-ui-dashboard", "frontend-proxy", "frontend", "front-end", "nginx-web-server")
_LOADS = ("loadgenerator", "load-generator")


def loaded(pack: Path, key: str) -> ForeignEpisode:
    """Read a datapack: the normal and the abnormal window together are the view."""
    windows = windows_of(pack)
    label = label_of(pack, key, windows)
    start, end = windows.start_ns, windows.end_ns
    services = tuple(dict.fromkeys([*_services(pack), *label["targets"]]))
    return ForeignEpisode(
        app=_app(pack, services),
        view_start_ns=start,
        view_end_ns=end,
        reference_end_ns=reference_end(start, end, label["inject_start"], origin=str(pack)),
        services=services,
        tables={
            "metrics": partial(_metrics, pack, start, end),
            "spans": partial(_spans, pack, start, end),
            "logs": partial(_logs, pack, start, end),
        },
        source_intervals_s={"metrics": _interval_s(pack)},
        workload_entry=next((name for name in _ENTRIES if name in services), ""),
        metric_roles=METRIC_ROLES,
        label=label,
        inputs=_inputs(pack),
    )


def _inputs(pack: Path) -> tuple[Path, ...]:
    """Return the files of a datapack that are read."""
    others = (pack / name for name in (ENVIRONMENT, INJECTION, CONCLUSION))
    return (
        *(path for kind in KINDS for path in stage_files(pack, kind)),
        *(path for path in others if path.is_file()),
    )


def _metrics(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    for kind in ("metrics", "metrics_sum"):
        files = stage_files(pack, kind)
        if files:
            yield sample_rows([read_parquet(path) for path in files], start, end, sums=kind == "metrics_sum")
    files = stage_files(pack, "metrics_histogram")
    if files:
        yield from histogram_rows([read_parquet(path) for path in files], start, end)


def _spans(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    files = stage_files(pack, "traces")
    if files:
        # Both windows at once: a trace may cross from one to the other.
        yield span_rows([read_parquet(path) for path in files], start, end)


def _logs(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    for path in stage_files(pack, "logs"):
        yield log_rows([read_parquet(path)], start, end)


def _services(pack: Path) -> list[str]:
    """Return the services that any file names, sorted; those that make the load are no candidates."""
    found: set[str] = set()
    for kind in KINDS:
        for path in stage_files(pack, kind):
            for column in read_parquet(path, ["service_name", "ServiceName"]).columns:
                found.update(word for word in pc.unique(column.cast(pa.string())).to_pylist() if word)
    return sorted(found - set(_LOADS))


def _app(pack: Path, services: Sequence[str]) -> str:
    if any(name.startswith(_APPS[0]) for name in services):
        return _APPS[1]
    # Datapacks are called after their namespace: otel-demo0-checkout-delay-abc.
    return pack.name.split("-")[0] if "-" in pack.name else pack.name


def _interval_s(pack: Path) -> float | None:
    """Return the usual time between two samples of one series, to the second."""
    for path in stage_files(pack, "metrics"):
        table = read_parquet(path, ["time", "TimeUnix", "metric", "MetricName", "service_name", "ServiceName"])
        clock = clock_of(table.column_names)
        name = next((name for name in ("metric", "MetricName") if name in table.column_names), None)
        if clock is None or name is None or not len(table):
            continue
        times = np.asarray(stamps_ns(table[clock]).to_numpy(), dtype=np.int64)
        codes = table[name].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        best = np.bincount(codes).argmax()
        gaps = np.diff(np.unique(times[codes == best] // SECOND_NS))
        if len(gaps):
            return float(np.max([1, np.median(gaps)]))
    return None
