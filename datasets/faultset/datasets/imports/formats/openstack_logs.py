"""Tests of the OpenStack failure dataset, and the processes, logs and spans of its projects."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import build_table, constant, encode_words

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
"""Topic or its prefix -> called process. Messages to all agents count as calls of the Open vSwitch agent."""
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
"""Pattern of a source path, and the processes that run it; the first match counts.

Other code may run in any process of its project."""
_HTTP_SERVERS = ("neutron-server", "cinder-api", "glance-api", "keystone")
HTTP_CALLS = (
    *((caller, callee) for caller in ("nova-compute", "nova-api", "nova-conductor") for callee in _HTTP_SERVERS),
    ("cinder-volume", "glance-api"),
    ("cinder-api", "keystone"),
    ("neutron-server", "keystone"),
    ("glance-api", "keystone"),
    ("glance-api", "glance-registry"),
    ("neutron-metadata-agent", "nova-api"),
)
"""HTTP calls between projects as documented by OpenStack; spans do not show them."""
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
    """Return the process called by a message to a topic, or None for an unknown topic.

    Examples
    --------
    >>> process_of_topic("cinder-volume.host@lvm"), process_of_topic("neutron-vo-Port-1.0"), process_of_topic("other")
    ('cinder-volume', 'neutron-openvswitch-agent', None)
    """
    if topic in _TOPICS:
        return _TOPICS[topic]
    return next((name for start, name in _TOPICS.items() if topic.startswith((f"{start}.", f"{start}-"))), None)


def processes_of_code(path: str, processes: Collection[str]) -> tuple[str, ...]:
    """Return the processes that may run a source file.

    Examples
    --------
    >>> processes_of_code("/nova/virt/libvirt/driver.py", ["nova-api", "nova-compute"])
    ('nova-compute',)
    >>> processes_of_code("/nova/objects/instance.py", ["nova-api", "nova-compute", "cinder-api"])
    ('nova-api', 'nova-compute')
    """
    project_processes = sorted(name for name in processes if name.startswith(f"{path.strip('/').split('/')[0]}-"))
    runners = next((names for pattern, names in _CODE_PATTERNS if pattern.search(path)), ())
    return tuple(name for name in project_processes if name in runners) or tuple(project_processes)


def caller_of_code(paths: Collection[str], processes: Collection[str]) -> str | None:
    """Return the process of the nearest source file in a call stack that only one process may run."""
    for path in paths:
        callers = processes_of_code(path, processes)
        if len(callers) == 1:
            return callers[0]
    return None


SUBSYSTEMS = ("nova", "cinder", "neutron")
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) ")
_STARTED = re.compile(r"-(\d{9,11})\.out\.")
_EPOCH = re.compile(r"^(\d{9,11}\.\d+) ")
_HALF_HOUR_S = 1800
COLUMNS = ("TEST", "FAULT_TYPE", "COMPONENT", "CLASS", "FUNCTION", "ROUND_1", "ROUND_2")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A test: a round of the workload with the fault, and the same round without."""

    name: str
    """For instance `Nova/Test_1`."""
    folder: Path
    row: Mapping[str, str]
    """Its row in the table of the subsystem."""

    def round(self, number: int) -> WorkloadRound:
        """Return round 1 with the fault or round 2 without."""
        return WorkloadRound(self.folder / "logs" / f"round_{number}")


@dataclass(frozen=True)
class WorkloadRound:
    """A run of the workload."""

    folder: Path

    @property
    def logs(self) -> dict[str, Path]:
        """Log of each process."""
        return {
            process_of_log(path.parent.name, path.name): path
            for path in sorted(self.folder.glob("*/*.out"))
            if path.parent.name != "foreground_wl"
        }

    @property
    def traces(self) -> Path | None:
        """File with the spans, or None."""
        return next(iter(sorted(self.folder.glob("trace_*.log"))), None)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that are read."""
        others = (self.traces, next(iter(self._client_logs), None), self.folder / "trigger_log")
        return (*self.logs.values(), *(path for path in others if path is not None and path.is_file()))

    @property
    def _client_logs(self) -> list[Path]:
        return sorted(self.folder.glob("foreground_wl/*.out.*"))

    def window(self) -> tuple[int, int, int]:
        """Return the start and end of the workload in UTC ns, and the seconds by which log times are ahead of UTC.

        Raises
        ------
        DataError
            The client's log is missing or has no time.
        """
        logs = self._client_logs
        created = _STARTED.search(logs[0].name) if logs else None
        if created is None:
            raise DataError(f"{self.folder / 'foreground_wl'} needs a log of the client; restore it")
        stamps = [match[1] for line in _lines(logs[0]) if (match := _STAMP.match(line))]
        if not stamps:
            raise DataError(f"{logs[0]} needs a line with a time; restore the file")
        local = (local_ns(stamps[0]), local_ns(stamps[-1]))
        # The file name has the creation time in UTC; time zones differ by whole half hours.
        ahead_s = round((local[0] / SECOND_NS - int(created[1])) / _HALF_HOUR_S) * _HALF_HOUR_S
        return local[0] - ahead_s * SECOND_NS, local[1] - ahead_s * SECOND_NS + SECOND_NS, ahead_s

    def activations(self, ahead_s: int) -> list[int]:
        """Return the UTC ns when the faulty code ran; the file has epoch seconds or local times."""
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
    """Return all tests below a folder that have a round with a fault, sorted.

    Raises
    ------
    DataError
        A table cannot be read.
    """
    tests = []
    for table in sorted(root.rglob("*.tsv")):
        if table.stem not in SUBSYSTEMS:
            continue
        for row in _read_tests(table):
            folder = table.parent / table.stem.capitalize() / row["TEST"]
            if (folder / "logs" / "round_1").is_dir():
                name = f"{table.stem.capitalize()}/{row['TEST']}"
                tests.append(Experiment(name=name, folder=folder, row=row))
    return sorted(tests, key=lambda test: (test.name.partition("/")[0], int(test.name.rpartition("_")[2])))


def local_ns(stamp: str) -> int:
    """Return the local time of a log, read as UTC, in nanoseconds."""
    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS + moment.microsecond * 1000


def _read_tests(path: Path) -> Sequence[Mapping[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); restore the file") from error
    missing = [name for name in COLUMNS if rows and rows[0].get(name) is None]
    if missing:
        raise DataError(f"{path} has no column {', '.join(missing)}; restore the file")
    if any(not re.fullmatch(r"Test_\d+", row["TEST"] or "") for row in rows):
        raise DataError(f"{path} must have Test_NUMBER in all cells of TEST; restore the file")
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
    """A round of the workload and the shift of its rows into the view."""

    round: WorkloadRound
    start_ns: int
    end_ns: int
    ahead_s: int
    """Seconds by which log times are ahead of UTC."""
    moved_ns: int = 0

    def move(self, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows fall into the segment, and their times in the view."""
        inside = (times_ns >= self.start_ns) & (times_ns < self.end_ns)
        return inside, times_ns[inside] + self.moved_ns


def log_rows(segments: Sequence[RoundSegment]) -> Iterator[pa.Table]:
    """Yield the table `logs`, one file at a time; lines without a time belong to the previous line."""
    for segment in segments:
        for process, path in segment.round.logs.items():
            yield _log_table(segment, process, path)


def span_rows(segments: Sequence[RoundSegment], processes: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the table `spans`, with each RPC as a client span of its caller."""
    for segment in segments:
        yield _span_table(segment, read_spans(segment.round), processes)


def read_spans(run: WorkloadRound) -> list[dict[str, Any]]:
    """Return the spans of a round; empty without a file of spans."""
    if run.traces is None:
        return []
    try:
        traces = json.loads(run.traces.read_text(encoding="utf-8", errors="replace") or "[]")
        return [_parse_span(span) for trace in traces for span in trace]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{run.traces} must be a list of Zipkin traces ({str(error)[:160]}); restore it or leave the case out"
        ) from error


def ends_of(span: dict[str, Any], processes: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the caller and the callee of a span; None for an unknown process."""
    tags = span["tags"]
    frames = [match[1] for key in ("caller_1", "caller_2") if (match := _PACKAGE_CODE.search(tags.get(key, "")))]
    topic = _TOPIC.search(tags.get("target", ""))
    callee = process_of_topic(topic[1].strip()) if topic else None
    if callee is None and "novaclient" in tags.get("target", ""):
        callee = process_of_topic("novaclient")
    return caller_of_code(frames, processes), callee if callee in processes else None


def _parse_span(span: Any) -> dict[str, Any]:
    tags = {str(tag["key"]).strip().rstrip(":"): str(tag["value"]) for tag in span.get("binaryAnnotations") or ()}
    return {
        "trace": str(span["traceId"]),
        "id": str(span["id"]),
        "start": int(span["timestamp"]),
        "duration": int(span.get("duration") or 0),
        "tags": tags,
    }


def _log_table(segment: RoundSegment, process: str, path: Path) -> pa.Table:
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
    inside, times_ns = segment.move((whole - segment.ahead_s) * SECOND_NS + thousandths * 1_000_000)
    lines = fields.filter(pa.array(inside))
    request = lines.field("request")
    return build_table(
        "logs",
        {
            "time": pa.array(times_ns),
            "service": constant(process, len(lines)),
            "pod": constant(process, len(lines)),
            "container": encode_words(lines.field("module")),
            "level": _levels(lines.field("level")),
            "message": pc.utf8_rtrim_whitespace(lines.field("text")),  # type: ignore[attr-defined]
            "trace_id": pc.if_else(pc.equal(request, ""), pa.scalar(None, pa.string()), request),  # type: ignore[attr-defined]
        },
    )


def _levels(column: pa.Array) -> pa.ChunkedArray:
    encoded = column.dictionary_encode()
    words = pa.array([_LEVELS.get(word) for word in encoded.dictionary.to_pylist()], pa.string())
    return encode_words(words.take(encoded.indices))


def _span_table(segment: RoundSegment, spans: list[dict[str, Any]], processes: Sequence[str]) -> pa.Table:
    inside, times_ns = segment.move(np.array([span["start"] for span in spans], dtype=np.int64) * 1000)
    rows = [span for span, is_inside in zip(spans, inside.tolist(), strict=True) if is_inside]
    tags = [span["tags"] for span in rows]
    ends = [ends_of(span, processes) for span in rows]
    requests = [_TRACED.search(row.get("message", "")) for row in tags]
    # A request id in the call is also in the logs, so it joins both tables.
    traces = [request[1] if request else span["trace"] for request, span in zip(requests, rows, strict=True)]
    caller = _encode(caller for caller, _ in ends)
    return build_table(
        "spans",
        {
            "time": pa.array(times_ns),
            "trace_id": pa.array(traces, pa.string()),
            "span_id": pa.array([span["id"] for span in rows], pa.string()),
            "service": caller,
            "reported_service": _encode(caller or "unknown" for caller, _ in ends),
            "peer_service": _encode(callee for _, callee in ends),
            "pod": caller,
            "operation": _encode(row.get("method", "unnamed") for row in tags),
            "kind": constant("client", len(rows)),
            "duration_ns": pa.array([span["duration"] * 1000 for span in rows], pa.int64()),
            "status": _encode("error" if "error" in row else "unset" for row in tags),
        },
    )


def _encode(words: Iterable[str | None]) -> pa.ChunkedArray:
    return encode_words(pa.array(list(words), pa.string()))
