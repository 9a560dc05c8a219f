"""Import the OpenStack failure dataset; each test becomes one episode."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import (
    build_table,
    constant,
    empty_to_null,
    encode_words,
    parsing,
    pc,
    rename_levels,
)
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_cause,
    build_evidence,
    report_issues,
)

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
_PROCESSES_OF_CODE = (
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

Other code may run in any process of its project.
"""
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


def process_of_log(subsystem: str, file: str) -> str:
    """Return the process that writes a log.

    >>> process_of_log("nova", "nova-compute.log.bzip2.out"), process_of_log("neutron", "l3-agent.log.bzip2.out")
    ('nova-compute', 'neutron-l3-agent')
    """
    name = PurePath(file).name.removesuffix(_SUFFIX)
    return name if name == subsystem or name.startswith(f"{subsystem}-") else f"{subsystem}-{name}"


def process_of_topic(topic: str) -> str | None:
    """Return the process called by a message to a topic, or None for an unknown topic.

    >>> process_of_topic("cinder-volume.host@lvm"), process_of_topic("neutron-vo-Port-1.0"), process_of_topic("other")
    ('cinder-volume', 'neutron-openvswitch-agent', None)
    """
    if topic in _TOPICS:
        return _TOPICS[topic]
    return next((name for start, name in _TOPICS.items() if topic.startswith((f"{start}.", f"{start}-"))), None)


def processes_of_code(path: str, processes: Collection[str]) -> tuple[str, ...]:
    """Return the processes that may run a source file.

    >>> processes_of_code("/nova/virt/libvirt/driver.py", ["nova-api", "nova-compute"])
    ('nova-compute',)
    >>> processes_of_code("/nova/objects/instance.py", ["nova-api", "nova-compute", "cinder-api"])
    ('nova-api', 'nova-compute')
    """
    project_processes = sorted(name for name in processes if name.startswith(f"{path.strip('/').split('/')[0]}-"))
    runners = next((names for pattern, names in _PROCESSES_OF_CODE if re.search(pattern, path)), ())
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
    """A test: a round of the workload with the fault, and the same round without it."""

    name: str
    """For instance `Nova/Test_1`."""
    folder: Path
    row: Mapping[str, str]
    """Its row in the table of the subsystem."""

    def round(self, number: int) -> WorkloadRound:
        """Return round 1, with the fault, or round 2, without it."""
        return WorkloadRound(self.folder / "logs" / f"round_{number}")


@dataclass(frozen=True)
class WorkloadRound:
    folder: Path

    @property
    def logs(self) -> dict[str, Path]:
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
        others = (self.traces, next(iter(self._client_logs), None), self.folder / "trigger_log")
        return (*self.logs.values(), *(path for path in others if path is not None and path.is_file()))

    @property
    def _client_logs(self) -> list[Path]:
        return sorted(self.folder.glob("foreground_wl/*.out.*"))

    def window(self) -> tuple[int, int, int]:
        """Return the start and end of the workload in UTC ns, and the seconds by which log times are ahead of UTC."""
        logs = self._client_logs
        created = _STARTED.search(logs[0].name) if logs else None
        if created is None:
            raise DataError(f"{self.folder / 'foreground_wl'} needs a log of the client; restore it")
        stamps = [match[1] for line in _read_text(logs[0]).splitlines() if (match := _STAMP.match(line))]
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
        for line in _read_text(path).splitlines():
            if match := _EPOCH.match(line):
                times.append(round(float(match[1]) * SECOND_NS))
            elif match := _STAMP.match(line):
                times.append(local_ns(match[1]) - ahead_s * SECOND_NS)
        return sorted(times)


def find_experiments(root: Path) -> list[Experiment]:
    """Return all tests below a folder that have a round with a fault, sorted."""
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
    with parsing(path, "be a table of tests"), path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    missing = [name for name in COLUMNS if rows and rows[0].get(name) is None]
    if missing:
        raise DataError(f"{path} has no column {', '.join(missing)}; restore the file")
    if any(not re.fullmatch(r"Test_\d+", row["TEST"] or "") for row in rows):
        raise DataError(f"{path} must have Test_NUMBER in all cells of TEST; restore the file")
    return [{str(name): str(value or "").strip() for name, value in row.items()} for row in rows]


def _read_text(path: Path) -> str:
    with parsing(path, "be readable", "restore it or leave the case out"):
        return path.read_text(encoding="utf-8", errors="replace")


_LOG_RECORD = re.compile(r"\n(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ [A-Z])")
_LOG_FIELDS = (
    r"(?s)^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \d+ (?P<level>[A-Z]+) (?P<module>\S+) "
    r"(?:\[(?P<request>req-[0-9a-f-]+)[^\]]*\] ?)?(?P<text>.*)$"
)
_TRACED = re.compile(r"'_context_request_id': u?'(req-[0-9a-f-]+)'")
_TOPIC = re.compile(r"topic=([^,>]+)")
_PACKAGE_CODE = re.compile(r"/(?:site|dist)-packages(/[^']+)'")


@dataclass(frozen=True)
class RoundSegment:
    """A round of the workload and the shift of its rows into the view."""

    round: WorkloadRound
    start_ns: int
    end_ns: int
    ahead_s: int
    """Seconds by which log times are ahead of UTC."""
    moved_ns: int = 0

    def move(self, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows are in the segment, and their times in the view."""
        inside = (times_ns >= self.start_ns) & (times_ns < self.end_ns)
        return inside, times_ns[inside] + self.moved_ns


def log_rows(segments: Sequence[RoundSegment]) -> Iterator[pa.Table]:
    """Yield the table `logs`, one file at a time; lines without a time belong to the previous line."""
    for segment in segments:
        for process, path in segment.round.logs.items():
            yield _build_log_table(segment, process, path)


def span_rows(segments: Sequence[RoundSegment], processes: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the table `spans`, with each RPC as a client span of its caller."""
    for segment in segments:
        spans = read_spans(segment.round)
        inside, times_ns = segment.move(np.array([span["start"] for span in spans], dtype=np.int64) * 1000)
        rows = [span for span, is_inside in zip(spans, inside.tolist(), strict=True) if is_inside]
        tags = [span["tags"] for span in rows]
        ends = [ends_of(span, processes) for span in rows]
        requests = [_TRACED.search(row.get("message", "")) for row in tags]
        # A request id in the call is also in the logs, so it joins both tables.
        traces = [request[1] if request else span["trace"] for request, span in zip(requests, rows, strict=True)]
        texts = {
            "trace_id": traces,
            "span_id": [span["id"] for span in rows],
            "service": [caller for caller, _ in ends],
            "reported_service": [caller or "unknown" for caller, _ in ends],
            "peer_service": [callee for _, callee in ends],
            "pod": [caller for caller, _ in ends],
            "operation": [row.get("method", "unnamed") for row in tags],
            "kind": ["client"] * len(rows),
            "status": ["error" if "error" in row else "unset" for row in tags],
        }
        durations = pa.array([span["duration"] * 1000 for span in rows], pa.int64())
        columns = {name: pa.array(words, pa.string()) for name, words in texts.items()}
        yield build_table("spans", columns | {"time": pa.array(times_ns), "duration_ns": durations})


def read_spans(run: WorkloadRound) -> list[dict[str, Any]]:
    """Return the spans of a round; empty if it has no file of spans."""
    if run.traces is None:
        return []
    with parsing(run.traces, "be a list of Zipkin traces", "restore it or leave the case out"):
        traces = json.loads(run.traces.read_text(encoding="utf-8", errors="replace") or "[]")
        return [_parse_span(span) for trace in traces for span in trace]


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


def _build_log_table(segment: RoundSegment, process: str, path: Path) -> pa.Table:
    fields = pc.extract_regex(pa.array(_LOG_RECORD.split(_read_text(path)), pa.string()), _LOG_FIELDS)
    fields = fields.drop_null()
    stamps = fields.field("time")
    times = pc.strptime(pc.utf8_slice_codeunits(stamps, 0, 19), "%Y-%m-%d %H:%M:%S", "s")
    whole = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    milliseconds = pc.utf8_slice_codeunits(stamps, 20, 23).cast(pa.int64()).to_numpy(zero_copy_only=False)
    inside, times_ns = segment.move((whole - segment.ahead_s) * SECOND_NS + milliseconds * 1_000_000)
    lines = fields.filter(pa.array(inside))
    return build_table(
        "logs",
        {
            "time": pa.array(times_ns),
            "service": constant(process, len(lines)),
            "pod": constant(process, len(lines)),
            "container": encode_words(lines.field("module")),
            "level": rename_levels(lines.field("level")),
            "message": pc.utf8_rtrim_whitespace(lines.field("text")),
            "trace_id": empty_to_null(lines.field("request")),
        },
    )


_FAILED = "FAILURE"


class OpenStackImport(ImportFormat):
    """OpenStack failure dataset (ESEC/FSE 2019): tables of tests and folders of their logs, or an archive of both.

    The workload is a script, so the requests before a fault differ from those after it. The reference is therefore the
    second round of the script, which has no fault; it is moved so that it ends where the first round begins. Candidates
    are processes. If several processes of a project share the faulty code, each of them is a correct answer.
    """

    name = "openstack"
    title = "OpenStack failure dataset"
    layout = (
        ("a table of tests (nova.tsv, cinder.tsv, neutron.tsv)", r"(^|/)(nova|cinder|neutron)\.tsv$"),
        ("folders Test_n", r"(^|/)Test_"),
    )
    weakness = (
        "There are no cases without a fault and no metrics. The reference is the round after the fault. If several "
        "processes run the faulty code, the faulty process is unknown."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        tests = find_experiments(unpack(path))
        if not tests:
            raise DataError(f"{path} holds no test; give the folder with nova.tsv and the folders of its tests")
        return [
            Case(key=test.name, paths=(test.folder,), facts={"row": dict(test.row)}, has_fault=True) for test in tests
        ]

    def load(self, case: Case) -> ForeignEpisode:
        test = Experiment(name=case.key, folder=case.paths[0], row=case.facts["row"])
        faulty, healthy = test.round(1), test.round(2)
        start_ns, end_ns, ahead_s = faulty.window()
        healthy_start_ns, healthy_end_ns, healthy_ahead_s = healthy.window()
        onset = _find_onset_ns(test, start_ns, end_ns, ahead_s)
        report_issues(partial(_find_issues, test, ahead_s))
        moved = start_ns - healthy_end_ns
        before = RoundSegment(healthy, healthy_start_ns, healthy_end_ns, healthy_ahead_s, moved)
        segments = (before, RoundSegment(faulty, start_ns, end_ns, ahead_s))
        processes = tuple(sorted({*faulty.logs, *healthy.logs}))
        causes = processes_of_code(test.row["COMPONENT"], processes)
        if not causes:
            raise DataError(f"{test.folder} needs a log of the project with {test.row['COMPONENT']}; restore it")
        pairs = {ends_of(span, processes) for span in read_spans(healthy)} | set(HTTP_CALLS)
        names = set(processes)
        runs = f"the faulty code ran {len(faulty.activations(ahead_s))} times"
        round_2 = f"the round without the fault, moved by {moved} ns"
        return ForeignEpisode(
            app="openstack",
            view_start_ns=start_ns - (healthy_end_ns - healthy_start_ns),
            view_end_ns=end_ns,
            reference_end_ns=start_ns,
            reference_moved_ns=moved,
            services=processes,
            calls=tuple(sorted((a, b) for a, b in pairs if a in names and b in names and a != b)),
            tables={"logs": partial(log_rows, segments), "spans": partial(span_rows, segments, processes)},
            label=_build_label(test, causes, onset),
            inputs=(*faulty.files, *healthy.files),
            evidence=(
                build_evidence("injection", test.row["COMPONENT"], runs, time_ns=onset),
                build_evidence("health", "reference", round_2, passed=test.row["ROUND_2"] != _FAILED),
            ),
        )


def _find_issues(test: Experiment, ahead_s: int) -> Iterator[DataIssue]:
    problem = f"Times of logs are {ahead_s / 3600:+g} h from UTC, without a time zone."
    yield DataIssue("note", test.name, problem, "They are converted to UTC.")
    if test.row["ROUND_2"] == _FAILED:
        yield DataIssue("warning", test.name, "The round without the fault failed too.", "It is the reference anyway.")
    if any(test.round(number).traces is None for number in (1, 2)):
        yield DataIssue("warning", test.name, "A round has no spans.", "The episode has the remaining rows.")
    if len(processes_of_code(test.row["COMPONENT"], tuple(test.round(1).logs))) > 1:
        problem = "The faulty code runs in several processes."
        yield DataIssue("note", test.name, problem, "Each of them is a correct answer.")


def _find_onset_ns(test: Experiment, start_ns: int, end_ns: int, ahead_s: int) -> int:
    """Return the time when the faulty code first ran; raise DataError if it is outside the round."""
    times = test.round(1).activations(ahead_s)
    if not times:
        raise DataError(f"{test.folder} needs an activation of its fault, but has none; leave the case out")
    if not start_ns <= times[0] < end_ns:
        raise DataError(
            f"the fault of {test.folder} must begin in the {(end_ns - start_ns) / SECOND_NS:.0f} s of the workload, "
            f"but begins {(times[0] - start_ns) / SECOND_NS:+.0f} s from its start; leave the case out"
        )
    return times[0]


def _build_label(test: Experiment, causes: Sequence[str], onset_ns: int) -> dict[str, Any]:
    row = test.row
    return {
        "fault": row["FAULT_TYPE"].lower().removeprefix("openstack_"),
        "targets": list(causes),
        "root_causes": [build_cause(causes[0], kind="Process") | {"accepted": list(causes)}],
        "system_level": "Application",
        "fault_type": "Code Defect",
        "verdict": "manifest" if row["ROUND_1"] == _FAILED else "unknown",
        "inject_start": onset_ns,
        "parameters": {name.lower(): row[name] for name in ("COMPONENT", "CLASS", "FUNCTION", "FAULT_TYPE")},
    }
