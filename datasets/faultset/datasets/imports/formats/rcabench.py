"""Import datapacks of rcabench (OpenRCA 2.0, ops-lite): OpenTelemetry in Parquet, raw or converted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import canonical_json, parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.format.labels import join_distinct
from faultset.datasets.imports.archives import is_archive, list_names, unpack
from faultset.datasets.imports.columns import epoch_ns, list_words, read_json, read_parquet
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    build_cause,
    reference_end,
    report_issues,
)
from faultset.datasets.imports.formats.rcabench_files import (
    CONCLUSION,
    ENVIRONMENT,
    INJECTION,
    INVALID,
    KINDS,
    METRIC_ROLES,
    DatapackWindows,
    case_key,
    clock_of,
    datapacks,
    find_cases,
    histogram_rows,
    is_datapack,
    log_rows,
    parse_or_keep,
    sample_rows,
    span_rows,
    stage_files,
    stamps_ns,
    windows_of,
)

_ENTRIES = ("ts-ui-dashboard", "frontend-proxy", "frontend", "front-end", "nginx-web-server")
_LOADS = ("loadgenerator", "load-generator")


def _read_metrics(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    for kind in ("metrics", "metrics_sum", "metrics_histogram"):
        tables = [read_parquet(path) for path in stage_files(pack, kind)]
        if tables and kind == "metrics_histogram":
            yield from histogram_rows(tables, start, end)
        elif tables:
            yield sample_rows(tables, start, end, sums=kind == "metrics_sum")


def _list_services(pack: Path) -> list[str]:
    """Return the sorted services of all files without load generators."""
    names: set[str] = set()
    for kind in KINDS:
        for path in stage_files(pack, kind):
            for column in read_parquet(path, ["service_name", "ServiceName"]).columns:
                names.update(list_words(column))
    return sorted(names - {"", *_LOADS})


def _measure_interval_s(pack: Path) -> float | None:
    """Return the median time between samples of the most frequent metric, at least a second."""
    for path in stage_files(pack, "metrics"):
        table = read_parquet(path, ["time", "TimeUnix", "metric", "MetricName", "service_name", "ServiceName"])
        clock = clock_of(table.column_names)
        name = next((name for name in ("metric", "MetricName") if name in table.column_names), None)
        if clock is None or name is None or not len(table):
            continue
        times = np.asarray(stamps_ns(table[clock]).to_numpy(), dtype=np.int64)
        codes = table[name].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        most_frequent = np.bincount(codes).argmax()
        gaps = np.diff(np.unique(times[codes == most_frequent] // SECOND_NS))
        if len(gaps):
            return float(np.max([1, np.median(gaps)]))
    return None


def _describe_invalid(pack: Path) -> DataIssue:
    lines = (pack / INVALID).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    problem = f"The datapack is marked invalid: {lines[0] if lines else 'no reason given'}."
    return DataIssue("warning", case_key(pack), problem, "It is left out.")


def find_issues(pack: Path, windows: DatapackWindows, label: Mapping[str, Any]) -> Iterator[DataIssue]:
    key = case_key(pack)
    if windows.shift_ns:
        hours = windows.shift_ns / SECOND_NS / 3600
        problem = f"The windows differ from the telemetry by {hours:+g} h."
        yield DataIssue("warning", key, problem, "The windows are moved.")
    if windows.outside:
        yield DataIssue("note", key, f"{windows.outside} rows are outside the windows.", "They are left out.")
    start = read_json(pack / INJECTION).get("start_time")
    if start is not None and onset_of({"start_time": start}, windows) == windows.onset_ns:
        problem = "The injection begins outside the windows, or exactly at the start of the abnormal window."
        yield DataIssue("note", key, problem, "The onset is the start of the abnormal window.")
    if label["verdict"] == "unknown":
        problem = "No conclusion confirms that clients noticed the fault."
        yield DataIssue("note", key, problem, 'The verdict is "unknown".')
    if len(label["targets"]) > 1:
        yield DataIssue("note", key, "The label names several faulty services.", "Each becomes a root cause.")
    for kind in KINDS:
        files = stage_files(pack, kind)
        if len(files) == 1:
            yield DataIssue("warning", key, f"Only one window has {kind}.", "The other window has none.")
        elif not files:
            yield DataIssue("note", key, f"There are no {kind}.", "The episode has none.")
        for file in files:
            if not pq.read_metadata(parquet_path(file)).num_rows:
                yield DataIssue("note", key, f"{file.name} has no rows.", "The episode has none.")


class RCABenchImport:
    """Raw and converted datapacks of rcabench."""

    name = "rcabench"
    title = "rcabench"
    layout = (
        ("env.json or injection.json", r"(^|/)(env|injection)\.json$"),
        ("files such as normal_traces.parquet", r"(^|/)(ab)?normal_(metrics|traces|logs)\.parquet$"),
    )
    weakness = (
        "Every datapack has a fault, and the normal and the abnormal time have separate files, so the layout reveals "
        "the onset. Causal graphs are not imported."
    )

    def recognises(self, path: Path) -> bool:
        if is_archive(path):
            return is_datapack({Path(name).name for name in list_names(path)})
        return next(iter(datapacks(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        root = unpack(path)
        report_issues(lambda: [_describe_invalid(pack) for pack in datapacks(root) if (pack / INVALID).exists()])
        return find_cases(root)

    def load(self, case: Case) -> ForeignEpisode:
        """Read a datapack; the view is the normal and the abnormal window."""
        pack, key = case.paths[0], case.key
        windows = windows_of(pack)
        label = label_of(pack, key, windows)
        report_issues(partial(find_issues, pack, windows, label))
        start, end = windows.start_ns, windows.end_ns
        files = {kind: stage_files(pack, kind) for kind in KINDS}
        services = tuple(dict.fromkeys([*_list_services(pack), *label["targets"]]))
        # Names of datapacks begin with the namespace, for instance otel-demo0-checkout-delay-abc.
        is_train_ticket = any(name.startswith("ts-") for name in services)
        app = "train-ticket" if is_train_ticket else pack.name.split("-")[0]
        return ForeignEpisode(
            app=app,
            view_start_ns=start,
            view_end_ns=end,
            reference_end_ns=reference_end(start, end, label["inject_start"], origin=str(pack)),
            services=services,
            tables={
                "metrics": partial(_read_metrics, pack, start, end),
                # A trace may cross the border between the windows.
                "spans": lambda: (
                    [span_rows(list(map(read_parquet, files["traces"])), start, end)] if files["traces"] else []
                ),
                "logs": lambda: (log_rows([read_parquet(path)], start, end) for path in files["logs"]),
            },
            source_intervals_s={"metrics": _measure_interval_s(pack)},
            workload_entry=next((name for name in _ENTRIES if name in services), ""),
            metric_roles=METRIC_ROLES,
            label=label,
            inputs=(
                *chain.from_iterable(files.values()),
                *(path for name in (ENVIRONMENT, INJECTION, CONCLUSION) if (path := pack / name).is_file()),
            ),
        )


FAULTS = (
    "PodKill", "PodFailure", "ContainerKill", "MemoryStress", "CPUStress", "HTTPRequestAbort", "HTTPResponseAbort",
    "HTTPRequestDelay", "HTTPResponseDelay", "HTTPResponseReplaceBody", "HTTPResponsePatchBody",
    "HTTPRequestReplacePath", "HTTPRequestReplaceMethod", "HTTPResponseReplaceCode", "DNSError", "DNSRandom",
    "TimeSkew", "NetworkDelay", "NetworkLoss", "NetworkDuplicate", "NetworkCorrupt", "NetworkBandwidth",
    "NetworkPartition", "JVMLatency", "JVMReturn", "JVMException", "JVMGarbageCollector", "JVMCPUStress",
    "JVMMemoryStress", "JVMMySQLLatency", "JVMMySQLException",
)  # fmt: skip
"""Fault types of the old format by number."""

_LEVELS = (
    ("PodKill", "Virtualization", "Operation Error"),
    ("PodFailure", "Virtualization", "Operation Error"),
    ("ContainerKill", "Operating System", "Operation Error"),
    ("Network", "Operating System", "Network/Storage Issue"),
    ("DNS", "Operating System", "Network/Storage Issue"),
    ("MemoryStress", "Operating System", None),
    ("CPUStress", "Operating System", None),
    ("TimeSkew", "Operating System", None),
    ("HTTP", "Application", None),
    ("JVM", "Application", None),
)
"""Prefix of a fault's name, system level, and fault type; if the type is None, the fault's name is used."""
_HOUR_NS = 3_600 * SECOND_NS
_NEAR_NS = 900 * SECOND_NS


def label_of(pack: Path, key: str, windows: DatapackWindows) -> dict[str, Any]:
    path = pack / INJECTION
    record = read_json(path)
    if not isinstance(record, Mapping):
        raise DataError(f"{path} must hold an object; restore it or leave the datapack out")
    faults = list(dict.fromkeys(_list_faults(record, path)))
    causes = _list_causes(record, path)
    level, kind = _find_level(faults[0])
    end_ns = _parse_instant(record.get("end_time"))
    parameters: dict[str, Any] = {"case": key}
    for name in ("engine_config", "display_config"):
        if name in record:
            parameters[name] = parse_or_keep(record[name])
    if end_ns is not None:
        parameters["fault_end_ns"] = _remove_zone_hours(end_ns, windows.end_ns)
    return {
        "fault": join_distinct(faults),
        "targets": list(dict.fromkeys(cause["service"] for cause in causes)),
        "root_causes": causes,
        "faults": _faults_by_target(record, {cause["service"] for cause in causes}),
        "system_level": level,
        "fault_type": kind,
        "inject_start": onset_of(record, windows),
        "parameters": canonical_json(parameters),
        "verdict": "manifest" if _was_noticed(pack) else "unknown",
    }


def onset_of(record: Mapping[str, Any], windows: DatapackWindows) -> int:
    """Return the start of the injection, or of the abnormal window if the injection is unknown or outside the view."""
    start_ns = _parse_instant(record.get("start_time"))
    if start_ns is None:
        return windows.onset_ns
    moved = _remove_zone_hours(start_ns, windows.onset_ns)
    return moved if windows.start_ns < moved < windows.end_ns else windows.onset_ns


def _remove_zone_hours(instant: int, expected: int) -> int:
    """Remove whole hours that a time zone may have added, if the rest is within 15 minutes of the expected time."""
    moved = instant - round((instant - expected) / _HOUR_NS) * _HOUR_NS
    return moved if abs(moved - expected) <= _NEAR_NS else instant


def _parse_instant(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(epoch_ns([value])[0])
    if not isinstance(value, str) or not value:
        return None
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    whole = int(when.timestamp() // 1)
    return whole * SECOND_NS + when.microsecond * 1_000


def _list_leaves(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    config = parse_or_keep(record.get("engine_config"))
    leaves = config if isinstance(config, list) else [config]
    return [leaf for leaf in leaves if isinstance(leaf, Mapping)]


def _faults_by_target(record: Mapping[str, Any], targets: set[str]) -> list[dict[str, Any]] | None:
    """Return every fault with its target, or None if the datapack does not relate them."""
    faults = {str(leaf.get("app")): str(leaf["chaos_type"]) for leaf in _list_leaves(record) if leaf.get("chaos_type")}
    if faults.keys() != targets or len(faults) != len(_list_leaves(record)):
        return None
    return [
        {"fault": fault, "target": target, "system_level": level, "fault_type": kind, "parameters": {}}
        for target, fault in faults.items()
        for level, kind in [_find_level(fault)]
    ]


def _list_faults(record: Mapping[str, Any], path: Path) -> Iterator[str]:
    names = [str(leaf["chaos_type"]) for leaf in _list_leaves(record) if leaf.get("chaos_type")]
    if names:
        yield from names
        return
    kind = record.get("fault_type")
    if isinstance(kind, str) and kind.strip() and not kind.strip().isdigit():
        yield kind.strip()
        return
    try:
        number = int(kind)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{path} must name a fault; restore it or leave the datapack out") from None
    if not 0 <= number < len(FAULTS):
        raise DataError(
            f"{path} has fault type {number}, but it must be 0 to {len(FAULTS) - 1}; leave the datapack out"
        )
    yield FAULTS[number]


def _list_causes(record: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    content = parse_or_keep(record.get("ground_truth"))
    truths = content if isinstance(content, list) else [content]
    causes = [cause for truth in truths if isinstance(truth, Mapping) for cause in _yield_causes(truth)]
    if not causes:
        causes = [build_cause(name) for name in dict.fromkeys(_list_targets(record))]
    if not causes:
        raise DataError(f"{path} must name a faulty service; restore it or leave the datapack out")
    return causes


def _yield_causes(truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    services = [str(name) for name in truth.get("service") or () if name]
    metrics = [str(name) for name in truth.get("metric") or () if name]
    for service in services:
        yield build_cause(service, metric=metrics[0] if len(metrics) == 1 and len(services) == 1 else None)
    if len(services) == 1:
        for kind, field in (("Pod", "pod"), ("Container", "container")):
            for name in truth.get(field) or ():
                yield build_cause(services[0], kind=kind, name=str(name))


def _list_targets(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the services of the injection; direction `from` swaps source and target."""
    display = parse_or_keep(record.get("display_config"))
    points: list[tuple[Mapping[str, Any], Any]] = [(leaf, leaf.get("direction")) for leaf in _list_leaves(record)]
    if isinstance(display, Mapping) and isinstance(display.get("injection_point"), Mapping):
        points.append((display["injection_point"], display.get("direction")))
    for point, direction in points:
        source = point.get("source_service") or point.get("app_name") or point.get("app")
        name = point.get("target_service") if direction == "from" and point.get("target_service") else source
        if name:
            yield str(name)


def _find_level(fault: str) -> tuple[str | None, str]:
    for prefix, level, kind in _LEVELS:
        if fault.startswith(prefix):
            return level, kind or fault
    return None, fault


def _was_noticed(pack: Path) -> bool:
    """Return whether rcabench's detector found issues that clients noticed."""
    path = pack / CONCLUSION
    if not path.is_file():
        return False
    issues: Sequence[Any] = read_parquet(path, ["Issues"]).to_pydict().get("Issues", [])
    return any(issue not in (None, "", "{}") for issue in issues)
