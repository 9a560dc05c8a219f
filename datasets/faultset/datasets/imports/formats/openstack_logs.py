"""Tests of the OpenStack failure dataset, the processes of its projects, and rows of its logs and spans."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import LOGS, SPANS, TIME
from faultset.datasets.imports.columns import constant, words_of

_SUFFIX = ".log.bzip2.out"
_TOPICS = {
    "conductor": "nova-conductor",
    "compute": "nova-compute",
    "scheduler": "nova-scheduler",
    "consoleauth": "nova-consoleauth",
    "cinder-scheduler": "cinder-scheduler",
    "cinder-volume": "cinder-volume",
    "cinder-backup": "cinder-backup",
    "q-plugin": "neutron-server",
    "q-reports-plugin": "neutron-server",
    "q-l3-plugin": "neutron-server",
    "q-metering-plugin": "neutron-server",
    "q-server-resource-versions": "neutron-server",
    "dhcp_agent": "neutron-dhcp-agent",
    "l3_agent": "neutron-l3-agent",
    "q-agent-notifier": "neutron-openvswitch-agent",
    "neutron-vo": "neutron-openvswitch-agent",
    "novaclient": "nova-api",
}
"""Topic, or its beginning, -> the process that is called. Fan-outs to all agents count for the one of the switch."""
_CODE = (
    (r"/nova/(compute/manager|virt/|compute/resource_tracker|volume/)", ("nova-compute",)),
    (r"/nova/api/metadata/", ("nova-api",)),
    (r"/nova/api/", ("nova-api",)),
    (r"/nova/compute/api", ("nova-api",)),
    (r"/nova/conductor/(manager|tasks)", ("nova-conductor",)),
    (r"/nova/scheduler/(manager|filter|host_manager|filters)", ("nova-scheduler",)),
    (r"/nova/consoleauth/", ("nova-consoleauth",)),
    (r"/nova/servicegroup/|/nova/network/", ("nova-compute", "nova-api")),
    (r"/cinder/api/", ("cinder-api",)),
    (r"/cinder/volume/api", ("cinder-api",)),
    (r"/cinder/scheduler/(manager|host_manager|filter|flows|driver)", ("cinder-scheduler",)),
    (r"/cinder/volume/(manager|drivers|driver|flows/manager|targets)", ("cinder-volume",)),
    (r"/cinder/image/", ("cinder-volume",)),
    (r"/cinder/backup/", ("cinder-backup",)),
    (r"/neutron/agent/dhcp/", ("neutron-dhcp-agent",)),
    (r"/neutron/agent/l3/", ("neutron-l3-agent",)),
    (r"/neutron/agent/metadata/", ("neutron-metadata-agent",)),
    (r"/neutron/services/metering/", ("neutron-metering-agent",)),
    (r"/neutron/plugins/ml2/drivers/(openvswitch|agent)", ("neutron-openvswitch-agent",)),
    (r"/neutron/(plugins/ml2|db|notifiers|api|services)", ("neutron-server",)),
)
"""Code -> processes that run it, the first that fits. Code that is not listed may run in any process of its project."""
_ASKED_BY_HTTP = ("neutron-server", "cinder-api", "glance-api", "keystone")
HTTP_CALLS = (
    *((caller, callee) for caller in ("nova-compute", "nova-api", "nova-conductor") for callee in _ASKED_BY_HTTP),
    ("cinder-volume", "glance-api"),
    ("cinder-api", "keystone"),
    ("neutron-server", "keystone"),
    ("glance-api", "keystone"),
    ("glance-api", "glance-registry"),
    ("neutron-metadata-agent", "nova-api"),
)
"""Calls between the projects by HTTP, as OpenStack documents them: no span shows these."""
_CODE_PATTERNS = tuple((re.compile(pattern), processes) for pattern, processes in _CODE)


def process_of_log(subsystem: str, file: str) -> str:
    """Return the process that writes a log.

    Examples
    --------
    >>> process_of_log("nova", "nova-compute.log.bzip2.out"), process_of_log("neutron", "l3-agent.log.bzip2.out")
    ('nova-compute', 'neutron-l3-agent')
    """
    name = PurePath(file).name.removesuffix(_SUFFIX)
    return name if name == subsystem or name.startswith(f"{subsystem}-") else f"{subsystem}-{name}"


def process_of_topic(topic: str) -> str | None:
    """Return the process that is called by a message to a topic; None for a topic that is not known.

    Examples
    --------
    >>> process_of_topic("cinder-volume.host@lvm"), process_of_topic("neutron-vo-Port-1.0"), process_of_topic("other")
    ('cinder-volume', 'neutron-openvswitch-agent', None)
    """
    if topic in _TOPICS:
        return _TOPICS[topic]
    return next((name for start, name in _TOPICS.items() if topic.startswith((f"{start}.", f"{start}-"))), None)


def processes_of_code(path: str, processes: Collection[str]) -> tuple[str, ...]:
    """Return the processes in which a source file runs, of those that there are.

    Examples
    --------
    >>> processes_of_code("/nova/virt/libvirt/driver.py", ["nova-api", "nova-compute"])
    ('nova-compute',)
    >>> processes_of_code("/nova/objects/instance.py", ["nova-api", "nova-compute", "cinder-api"])
    ('nova-api', 'nova-compute')
    """
    own = sorted(name for name in processes if name.startswith(f"{path.strip('/').split('/')[0]}-"))
    listed = next((names for pattern, names in _CODE_PATTERNS if pattern.search(path)), ())
    found = tuple(name for name in own if name in listed)
    return found or tuple(own)


def caller_of_code(paths: Collection[str], processes: Collection[str]) -> str | None:
    """Return the process that the nearest frame of a call stack belongs to, where it is only one."""
    for path in paths:
        found = processes_of_code(path, processes)
        if len(found) == 1:
            return found[0]
    return None


SUBSYSTEMS = ("nova", "cinder", "neutron")
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) ")
_STARTED = re.compile(r"-(\d{9,11})\.out\.")
_EPOCH = re.compile(r"^(\d{9,11}\.\d+) ")
_HALF_HOUR_S = 1800
_NEVER = "0 activations"
COLUMNS = ("TEST", "FAULT_TYPE", "COMPONENT", "CLASS", "FUNCTION", "ROUND_1", "ROUND_2")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One test: a round of the workload with the fault, and the same round without."""

    name: str
    """For instance `Nova/Test_1`."""
    folder: Path
    row: Mapping[str, str]
    """What the table of its subsystem says about it."""

    def round(self, number: int) -> WorkloadRound:
        """Return round 1, which has the fault, or round 2, which has not."""
        return WorkloadRound(self.folder / "logs" / f"round_{number}")


@dataclass(frozen=True)
class WorkloadRound:
    """One run of the workload."""

    folder: Path

    @property
    def logs(self) -> dict[str, Path]:
        """Process -> its log."""
        return {
            process_of_log(path.parent.name, path.name): path
            for path in sorted(self.folder.glob("*/*.out"))
            if path.parent.name != "foreground_wl"
        }

    @property
    def traces(self) -> Path | None:
        """File with the spans; None where there is none."""
        return next(iter(sorted(self.folder.glob("trace_*.log"))), None)

    @property
    def files(self) -> tuple[Path, ...]:
        """Everything that is read of it."""
        others = (self.traces, next(iter(self._client_logs), None), self.folder / "trigger_log")
        return (*self.logs.values(), *(path for path in others if path is not None and path.is_file()))

    @property
    def _client_logs(self) -> list[Path]:
        return sorted(self.folder.glob("foreground_wl/*.out.*"))

    def window(self) -> tuple[int, int, int]:
        """Return when the workload began and ended, UTC ns, and by how many seconds log times are ahead of UTC.

        Raises
        ------
        DataError
            When the client's log is missing, or has no time.
        """
        found = self._client_logs
        began = _STARTED.search(found[0].name) if found else None
        if began is None:
            raise DataError(f"{self.folder / 'foreground_wl'} has no log of the client; restore it")
        stamps = [match[1] for line in _lines(found[0]) if (match := _STAMP.match(line))]
        if not stamps:
            raise DataError(f"{found[0]} has no line with a time; restore the file")
        local = (local_ns(stamps[0]), local_ns(stamps[-1]))
        # the name of the file says when it was made, in UTC; offsets of zones are whole half hours
        ahead_s = round((local[0] / SECOND_NS - int(began[1])) / _HALF_HOUR_S) * _HALF_HOUR_S
        return local[0] - ahead_s * SECOND_NS, local[1] - ahead_s * SECOND_NS + SECOND_NS, ahead_s

    def activations(self, ahead_s: int) -> list[int]:
        """Return when the faulty code ran, UTC ns; its file has epoch seconds or local times."""
        path = self.folder / "trigger_log"
        if not path.is_file():
            return []
        times = []
        for line in _lines(path):
            if match := _EPOCH.match(line):
                times.append(round(float(match[1]) * SECOND_NS))
            elif match := _STAMP.match(line):
                times.append(local_ns(match[1]) - ahead_s * SECOND_NS)
        return sorted(times)


def find_experiments(root: Path) -> list[Experiment]:
    """Return all tests below a folder that have both rounds, in order.

    Raises
    ------
    DataError
        For a table that cannot be read.
    """
    found = []
    for table in sorted(root.rglob("*.tsv")):
        if table.stem not in SUBSYSTEMS:
            continue
        for row in _table(table):
            folder = table.parent / table.stem.capitalize() / row["TEST"]
            if (folder / "logs" / "round_1").is_dir():
                name = f"{table.stem.capitalize()}/{row['TEST']}"
                found.append(Experiment(name=name, folder=folder, row=row))
    return sorted(found, key=lambda one: (one.name.partition("/")[0], int(one.name.rpartition("_")[2])))


def local_ns(stamp: str) -> int:
    """Return a time of a log as if it were UTC, in nanoseconds."""
    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1000


def _table(path: Path) -> Sequence[Mapping[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); restore the file") from error
    missing = [name for name in COLUMNS if rows and rows[0].get(name) is None]
    if missing:
        raise DataError(f"{path} has no column {', '.join(missing)}; restore the file")
    if any(not re.fullmatch(r"Test_\d+", row["TEST"] or "") for row in rows):
        raise DataError(f"{path} has rows whose TEST is no Test_NUMBER; restore the file")
    return [{str(name): str(value or "").strip() for name, value in row.items()} for row in rows]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error


_RECORD = re.compile(r"\n(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ [A-Z])")
_FIELDS = (
    r"(?s)^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \d+ (?P<level>[A-Z]+) (?P<module>\S+) "
    r"(?:\[(?P<request>req-[0-9a-f-]+)[^\]]*\] ?)?(?P<text>.*)$"
)
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "fatal"}
_TRACED = re.compile(r"'_context_request_id': u?'(req-[0-9a-f-]+)'")
_TOPIC = re.compile(r"topic=([^,>]+)")
_PACKAGE_CODE = re.compile(r"/(?:site|dist)-packages(/[^']+)'")


@dataclass(frozen=True, kw_only=True)
class RoundSegment:
    """A round of the workload and where its rows come in the view."""

    round: WorkloadRound
    start_ns: int
    end_ns: int
    ahead_s: int
    """Seconds by which log times are ahead of UTC."""
    moved_ns: int = 0

    def placed(self, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows lie in the part, and the times of those in the view."""
        inside = (times_ns >= self.start_ns) & (times_ns < self.end_ns)
        return inside, times_ns[inside] + self.moved_ns


def log_rows(parts: Sequence[RoundSegment]) -> Iterator[pa.Table]:
    """Yield the table `logs`, one file after the other; lines without a time belong to the line before."""
    for part in parts:
        for process, path in part.round.logs.items():
            yield _log(part, process, path)


def span_rows(parts: Sequence[RoundSegment], processes: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the table `spans`: every RPC as a span of its caller."""
    for part in parts:
        yield _spans(part, read_spans(part.round), processes)


def read_spans(run: WorkloadRound) -> list[dict[str, Any]]:
    """Return the spans of a round as its file has them; without a file there are none."""
    if run.traces is None:
        return []
    try:
        listed = json.loads(run.traces.read_text(encoding="utf-8", errors="replace") or "[]")
        return [_checked(span) for trace in listed for span in trace]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{run.traces} is no list of Zipkin traces ({str(error)[:160]}); restore it or leave the case out"
        ) from error


def ends_of(span: dict[str, Any], processes: Sequence[str]) -> tuple[str | None, str | None]:
    """Return who called whom; None where it cannot be told."""
    told = span["told"]
    frames = [match[1] for key in ("caller_1", "caller_2") if (match := _PACKAGE_CODE.search(told.get(key, "")))]
    topic = _TOPIC.search(told.get("target", ""))
    callee = process_of_topic(topic[1].strip()) if topic else None
    if callee is None and "novaclient" in told.get("target", ""):
        callee = process_of_topic("novaclient")
    return caller_of_code(frames, processes), callee if callee in processes else None


def _checked(span: Any) -> dict[str, Any]:
    told = {str(one["key"]).strip().rstrip(":"): str(one["value"]) for one in span.get("binaryAnnotations") or ()}
    return {
        "trace": str(span["traceId"]),
        "id": str(span["id"]),
        "start": int(span["timestamp"]),
        "duration": int(span.get("duration") or 0),
        "told": told,
    }


def _log(part: RoundSegment, process: str, path: Path) -> pa.Table:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
    fields = pc.extract_regex(pa.array(_RECORD.split(text), pa.string()), _FIELDS)  # type: ignore[attr-defined]
    fields = fields.drop_null()
    stamps = fields.field("time")
    times = pc.strptime(pc.utf8_slice_codeunits(stamps, 0, 19), "%Y-%m-%d %H:%M:%S", "s")  # type: ignore[attr-defined]
    whole = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    thousandths = pc.utf8_slice_codeunits(stamps, 20, 23).cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]
    inside, placed = part.placed((whole - part.ahead_s) * SECOND_NS + thousandths * 1_000_000)
    kept = fields.filter(pa.array(inside))
    rows = len(kept)
    request = kept.field("request")
    return _parts_table(
        LOGS,
        {
            "time": pa.array(placed),
            "service": constant(process, rows),
            "pod": constant(process, rows),
            "container": words_of(kept.field("module")),
            "level": _levels(kept.field("level")),
            "message": pc.utf8_rtrim_whitespace(kept.field("text")),  # type: ignore[attr-defined]
            "trace_id": pc.if_else(pc.equal(request, ""), pa.scalar(None, pa.string()), request),  # type: ignore[attr-defined]
            "span_id": pa.nulls(rows, pa.string()),
        },
    )


def _levels(column: pa.Array) -> pa.ChunkedArray:
    encoded = column.dictionary_encode()
    words = pa.array([_LEVELS.get(word) for word in encoded.dictionary.to_pylist()], pa.string())
    return words_of(words.take(encoded.indices))


def _spans(part: RoundSegment, spans: list[dict[str, Any]], processes: Sequence[str]) -> pa.Table:
    start = np.array([span["start"] for span in spans], dtype=np.int64) * 1000
    inside, placed = part.placed(start)
    kept = [span for span, keep in zip(spans, inside.tolist(), strict=True) if keep]
    rows = len(kept)
    ends = [ends_of(span, processes) for span in kept]
    request = [match[1] if (match := _TRACED.search(span["told"].get("message", ""))) else None for span in kept]
    failed = ["error" in span["told"] for span in kept]
    caller = words_of(pa.array([caller for caller, _ in ends], pa.string()))
    return _parts_table(
        SPANS,
        {
            "time": pa.array(placed),
            # the request of the logs where the call says it, so that both can be joined
            "trace_id": pa.array([one or span["trace"] for one, span in zip(request, kept, strict=True)], pa.string()),
            "span_id": pa.array([span["id"] for span in kept], pa.string()),
            "parent_span_id": pa.nulls(rows, pa.string()),
            "service": caller,
            "reported_service": words_of(pa.array([one or "unknown" for one, _ in ends], pa.string())),
            "peer_service": words_of(pa.array([callee for _, callee in ends], pa.string())),
            "pod": caller,
            "operation": words_of(pa.array([span["told"].get("method", "unnamed") for span in kept], pa.string())),
            "kind": constant("client", rows),
            "duration_ns": pa.array([span["duration"] * 1000 for span in kept], pa.int64()),
            "status": words_of(pa.array(["error" if wrong else "unset" for wrong in failed], pa.string())),
            "status_code": pa.nulls(rows, pa.int32()),
            "attributes": constant("{}", rows).cast(pa.string()),
        },
    )


def _parts_table(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    wanted = pa.schema([field for field in schema if field.name != "episode"])
    made = [
        columns[field.name].cast(TIME) if field.name == "time" else columns[field.name].cast(field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(made, schema=wanted)
