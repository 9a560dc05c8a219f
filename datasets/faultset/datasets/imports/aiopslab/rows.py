"""The observer's CSV files as rows of our tables.

Traps: a trace across n services is there n times; `timestamp` of logs is local time taken for UTC, only `date` is
right; counters are raw; samples of a pod and of its containers bear one name; the network's metrics carry their
interface in the name; windows asked for twice overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.datasets.format.schemas import LOGS, METRICS, SPANS, TIME
from faultset.datasets.imports.columns import absent, coded, constant, epoch_ns, read_csv
from faultset.datasets.imports.number_parsing import parse_numbers
from faultset.datasets.imports.spans import normalise_texts
from faultset.datasets.kubectl.kinds import workload_of_pod
from faultset.datasets.metrics.roles import builtin_catalogue

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = r"(?i)^\W*(?:\S+\s+){0,3}?(trace|debug|info|warn|warning|error|fatal|panic)\b"
_LEVELS = {"warn": "warning", "panic": "fatal"}


def read_metrics(path: Path) -> pd.DataFrame:
    """Return samples of one file with `time` in nanoseconds, `pod`, `metric` and `interface`."""
    frame = _read(path, ("timestamp", "cmdb_id", "kpi_name", "value"))
    stamps, values = parse_numbers(frame["timestamp"]), parse_numbers(frame["value"])
    known = ~np.isnan(stamps) & ~np.isnan(values)
    kept = frame[known].copy()
    kept["time"] = epoch_ns(stamps[known])
    kept["value"] = values[known]
    # Instances have dots of their own, pods have none.
    kept["pod"] = kept["cmdb_id"].str.rpartition(".")[2]
    family = path.stem.removeprefix("kpi_")
    named = kept["kpi_name"].str.startswith(family + ".")
    kept["metric"] = kept["kpi_name"].mask(named, family)
    kept["interface"] = kept["kpi_name"].str.removeprefix(family + ".").where(named)
    return kept


def read_spans(paths: Sequence[Path]) -> pd.DataFrame:
    """Return spans of all files, each once, with `time` and `duration_ns`."""
    wanted = (
        "trace_id", "span_id", "parent_span", "service_name", "operation_name", "start_time", "duration",
        "has_error", "response",
    )  # fmt: skip
    frame = _all(paths, wanted)
    for name in ("trace_id", "span_id", "parent_span"):
        frame[name] = normalise_texts(frame[name])
    frame = frame.drop_duplicates(["trace_id", "span_id"], ignore_index=True)
    frame["time"] = _whole(frame["start_time"], "start_time", paths)
    frame["duration_ns"] = _micro(frame["duration"])
    return frame


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Return lines of all files, each once, with `time` from `date`, `pod` and `container`."""
    import pandas as pd

    frames = []
    for path in paths:
        frame = _text(path)
        missing = {"date", "message"} - set(frame.columns)
        if missing or not {"pod_name", "cmdb_id"} & set(frame.columns):
            raise DataError(f"{path} has no columns date, message and pod_name; restore the file")
        named = frame["pod_name"] if "pod_name" in frame else frame["cmdb_id"].str.rpartition(".")[2]
        container = frame.get("container_name", named)
        identity = frame.get("log_id", pd.Series("", index=frame.index))
        frames.append(
            pd.DataFrame({
                "time": pd.to_datetime(frame["date"], utc=True, format="ISO8601", errors="coerce"),
                "pod": named,
                "container": container,
                "message": frame["message"],
                "log_id": identity,
            })
        )  # fmt: skip
    columns = ["time", "pod", "container", "message", "log_id"]
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    whole = whole[pd.notna(whole["time"])].drop_duplicates(ignore_index=True)
    whole["time"] = pd.to_datetime(whole["time"], utc=True).astype("datetime64[ns, UTC]").astype("int64")
    return whole


def metric_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `metrics`, metric by metric.

    A sample that was asked for twice, or that each container of a pod has, comes once, the largest.
    """
    import pandas as pd

    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.stem, []).append(path)
    catalogue = builtin_catalogue()
    for _, files in sorted(groups.items()):
        frame = pd.concat([read_metrics(path) for path in files], ignore_index=True)
        # The label that told containers apart is lost; the pod's own cgroup is the largest of them.
        frame = frame.sort_values("value", ascending=False, kind="stable")
        frame = frame.drop_duplicates(["time", "cmdb_id", "kpi_name"]).sort_index().reset_index(drop=True)
        if frame.empty:
            continue
        names = {name: catalogue.find(name) for name in frame["metric"].unique()}
        kinds = {name: row.kind if row else _kind(name) for name, row in names.items()}
        labels = {
            name: canonical_json({"interface": name} if isinstance(name, str) else {})
            for name in frame["interface"].unique()
        }
        yield _table(
            METRICS,
            {
                "time": pa.array(frame["time"].to_numpy(), pa.int64()).cast(TIME),
                "service": _words(frame["pod"].map({pod: workload_of_pod(pod) for pod in frame["pod"].unique()})),
                "pod": _words(frame["pod"]),
                "container": absent(len(frame)),
                "metric": _words(frame["metric"]),
                "labels": _words(frame["interface"].map(labels).fillna("{}")),
                "kind": _words(frame["metric"].map(kinds)),
                "value": pa.array(frame["value"].to_numpy(dtype=float)),
            },
        )


def span_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `spans`."""
    import pandas as pd

    if not paths:
        return
    frame = read_spans(paths)
    code = pd.to_numeric(frame["response"], errors="coerce").round().astype("Int32")
    failed = frame["has_error"].str.lower() == "true"
    roots = frame["parent_span"].isin(["ROOT", ""])
    yield _table(
        SPANS,
        {
            "time": pa.array(frame["time"].to_numpy(), pa.int64()).cast(TIME),
            "trace_id": pa.array(frame["trace_id"], pa.string()),
            "span_id": pa.array(frame["span_id"], pa.string()),
            "parent_span_id": pa.array(frame["parent_span"].where(~roots), pa.string(), from_pandas=True),
            "service": _words(frame["service_name"]),
            "reported_service": _words(frame["service_name"]),
            "peer_service": absent(len(frame)),
            "pod": absent(len(frame)),
            "operation": _words(frame["operation_name"]),
            "kind": coded(("internal", "server"), _serves(frame)),
            "duration_ns": pa.array(frame["duration_ns"].to_numpy(), pa.int64()),
            "status": coded(("unset", "error"), np.asarray(failed, dtype=np.int32)),
            "status_code": pa.array(code, pa.int32(), from_pandas=True),
            "attributes": constant("{}", len(frame)).cast(pa.string()),
        },
    )


def log_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `logs`."""
    if not paths:
        return
    frame = read_logs(paths)
    level = frame["message"].str.extract(_LEVEL)[0].str.lower().replace(_LEVELS)
    yield _table(
        LOGS,
        {
            "time": pa.array(frame["time"].to_numpy(dtype=np.int64), pa.int64()).cast(TIME),
            "service": _words(frame["pod"].map({pod: workload_of_pod(pod) for pod in frame["pod"].unique()})),
            "pod": _words(frame["pod"]),
            "container": _words(frame["container"]),
            "level": _words(level),
            "message": pa.array(frame["message"], pa.string()),
            "trace_id": pa.nulls(len(frame), pa.string()),
            "span_id": pa.nulls(len(frame), pa.string()),
        },
    )


def _serves(frame: pd.DataFrame) -> np.ndarray:
    """Say which spans begin a service's part: their parent is of another service, or there is none."""
    import pandas as pd

    owner = pd.Series(frame["service_name"].to_numpy(), index=pd.MultiIndex.from_frame(frame[["trace_id", "span_id"]]))
    parents = pd.MultiIndex.from_arrays([frame["trace_id"], frame["parent_span"]])
    return (owner.reindex(parents).to_numpy() != frame["service_name"].to_numpy()).astype(np.int32)


def _kind(metric: str) -> str:
    return "counter" if metric.endswith(("_total", "_count", "_sum")) else "gauge"


def _micro(column: pd.Series) -> np.ndarray:
    return np.round(np.nan_to_num(parse_numbers(column)) * 1000).astype(np.int64)


def _whole(column: pd.Series, name: str, paths: Sequence[Path]) -> np.ndarray:
    try:
        return epoch_ns(column.astype("int64").to_numpy())
    except ValueError as error:
        raise DataError(f"{paths[0].parent} has traces whose {name} is no number ({error}); restore them") from error


def _all(paths: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    frames = [_read(path, columns) for path in paths]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(columns), dtype=str)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    frame = _text(path)
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise DataError(f"{path} has no columns {', '.join(missing)}; restore the file")
    return frame[list(columns)]


def _text(path: Path) -> pd.DataFrame:
    """Return a file as text, without repeated headers and without the index that was written along."""
    from faultset.datasets.imports.columns import csv_header

    header = [name for name in csv_header(path) if name]
    frame: Any = read_csv(path, columns=header, text=header, newlines=True).to_pandas().fillna("")
    first = header[-1]
    return frame[frame[first] != first].reset_index(drop=True)


def _words(column: pd.Series) -> pa.DictionaryArray:
    return pa.array(column, pa.string(), from_pandas=True).dictionary_encode()


def _table(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.Table:
    wanted = pa.schema([field for field in schema if field.name != "episode"])
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in wanted], schema=wanted)
