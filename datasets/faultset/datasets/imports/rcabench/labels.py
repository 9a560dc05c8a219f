"""What a datapack's `injection.json` says, in our words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.format.labels import joined
from faultset.datasets.imports.columns import epoch_ns, read_parquet
from faultset.datasets.imports.rcabench.discovery import CONCLUSION, INJECTION, DatapackWindows, read_json

FAULTS = (
    "PodKill", "PodFailure", "ContainerKill", "MemoryStress", "CPUStress", "HTTPRequestAbort", "HTTPResponseAbort",
    "HTTPRequestDelay", "HTTPResponseDelay", "HTTPResponseReplaceBody", "HTTPResponsePatchBody",
    "HTTPRequestReplacePath", "HTTPRequestReplaceMethod", "HTTPResponseReplaceCode", "DNSError", "DNSRandom",
    "TimeSkew", "NetworkDelay", "NetworkLoss", "NetworkDuplicate", "NetworkCorrupt", "NetworkBandwidth",
    "NetworkPartition", "JVMLatency", "JVMReturn", "JVMException", "JVMGarbageCollector", "JVMCPUStress",
    "JVMMemoryStress", "JVMMySQLLatency", "JVMMySQLException",
)  # fmt: skip
"""Names of the old format's fault types, by their number."""

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
"""Beginning of a fault's name, system level and fault type; without one the fault's own name is its type."""
_HOUR_NS = 3_600 * SECOND_NS
_NEAR_NS = 900 * SECOND_NS


def label_of(pack: Path, key: str, windows: DatapackWindows) -> dict[str, Any]:
    """Return the label of a datapack; raise DataError when it names no fault or no service."""
    path = pack / INJECTION
    record = read_json(path)
    if not isinstance(record, Mapping):
        raise DataError(f"{path} must hold an object; restore it or leave the datapack out")
    faults = list(dict.fromkeys(_faults(record, path)))
    causes = _causes(record, path)
    level, kind = _level(faults[0])
    end_ns = _instant(record.get("end_time"))
    parameters: dict[str, Any] = {"case": key}
    for name in ("engine_config", "display_config"):
        if name in record:
            parameters[name] = _parsed(record[name])
    if end_ns is not None:
        parameters["fault_end_ns"] = _near(end_ns, windows.end_ns)
    return {
        "fault": joined(faults),
        "targets": list(dict.fromkeys(cause["service"] for cause in causes)),
        "root_causes": causes,
        "faults": _each_fault(record, {cause["service"] for cause in causes}),
        "system_level": level,
        "fault_type": kind,
        "inject_start": onset_of(record, windows),
        "parameters": canonical_json(parameters),
        "verdict": "manifest" if _felt(pack) else "unknown",
    }


def onset_of(record: Mapping[str, Any], windows: DatapackWindows) -> int:
    """Return when the injection began; where its time is not inside the view, the start of the abnormal window."""
    said = _instant(record.get("start_time"))
    if said is None:
        return windows.onset_ns
    moved = _near(said, windows.onset_ns)
    return moved if windows.start_ns < moved < windows.end_ns else windows.onset_ns


def _near(instant: int, expected: int) -> int:
    """Take whole hours away that only a time zone can have added."""
    moved = instant - round((instant - expected) / _HOUR_NS) * _HOUR_NS
    return moved if abs(moved - expected) <= _NEAR_NS else instant


def _instant(value: Any) -> int | None:
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


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _leaves(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    config = _parsed(record.get("engine_config"))
    leaves = config if isinstance(config, list) else [config]
    return [leaf for leaf in leaves if isinstance(leaf, Mapping)]


def _each_fault(record: Mapping[str, Any], targets: set[str]) -> list[dict[str, Any]] | None:
    """Return every fault with its target; None where the datapack does not say which is where."""
    found = {str(leaf.get("app")): str(leaf["chaos_type"]) for leaf in _leaves(record) if leaf.get("chaos_type")}
    if found.keys() != targets or len(found) != len(_leaves(record)):
        return None
    return [
        {"fault": fault, "target": target, "system_level": level, "fault_type": kind, "parameters": {}}
        for target, fault in found.items()
        for level, kind in [_level(fault)]
    ]


def _faults(record: Mapping[str, Any], path: Path) -> Iterator[str]:
    named = [str(leaf["chaos_type"]) for leaf in _leaves(record) if leaf.get("chaos_type")]
    if named:
        yield from named
        return
    kind = record.get("fault_type")
    if isinstance(kind, str) and kind.strip() and not kind.strip().isdigit():
        yield kind.strip()
        return
    try:
        number = int(kind)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{path} names no fault; restore it or leave the datapack out") from None
    if not 0 <= number < len(FAULTS):
        raise DataError(f"{path} has fault type {number}, known are 0 to {len(FAULTS) - 1}; leave the datapack out")
    yield FAULTS[number]


def _causes(record: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    truth = _parsed(record.get("ground_truth"))
    truths = truth if isinstance(truth, list) else [truth]
    causes: list[dict[str, Any]] = []
    for one in truths:
        if isinstance(one, Mapping):
            causes += _named(one)
    if not causes:
        causes = [_cause("Service", name, name) for name in dict.fromkeys(_targets(record))]
    if not causes:
        raise DataError(f"{path} names no service at fault; restore it or leave the datapack out")
    return causes


def _named(truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    services = [str(name) for name in truth.get("service") or () if name]
    metrics = [str(name) for name in truth.get("metric") or () if name]
    for service in services:
        yield _cause("Service", service, service, metrics[0] if len(metrics) == 1 and len(services) == 1 else None)
    if len(services) == 1:
        for kind, field in (("Pod", "pod"), ("Container", "container")):
            for name in truth.get(field) or ():
                yield _cause(kind, str(name), services[0])


def _cause(kind: str, name: str, service: str, metric: str | None = None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "service": service, "accepted": [service], "metric": metric}


def _targets(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the services that the injection itself names; direction `from` turns source and target round."""
    display = _parsed(record.get("display_config"))
    points: list[tuple[Mapping[str, Any], Any]] = [(leaf, leaf.get("direction")) for leaf in _leaves(record)]
    if isinstance(display, Mapping) and isinstance(display.get("injection_point"), Mapping):
        points.append((display["injection_point"], display.get("direction")))
    for point, direction in points:
        source = point.get("source_service") or point.get("app_name") or point.get("app")
        name = point.get("target_service") if direction == "from" and point.get("target_service") else source
        if name:
            yield str(name)


def _level(fault: str) -> tuple[str | None, str]:
    for beginning, level, kind in _LEVELS:
        if fault.startswith(beginning):
            return level, kind or fault
    return None, fault


def _felt(pack: Path) -> bool:
    """Say whether the datapack's own detector saw clients suffer."""
    path = pack / CONCLUSION
    if not path.is_file():
        return False
    issues: Sequence[Any] = read_parquet(path, ["Issues"]).to_pydict().get("Issues", [])
    return any(issue not in (None, "", "{}") for issue in issues)
