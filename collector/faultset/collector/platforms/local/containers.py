"""Containers of the node: their processes, log files, limits, resource usage, output and exit reports."""

from __future__ import annotations

import math
import os
import random
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import DeferredResponse
from faultset.collector.platforms.cluster.context import ContainerExited
from faultset.collector.platforms.local.messages import (
    ContainerSample,
    JobExited,
    PollExits,
    ReadSamples,
    SpawnContainer,
)
from faultset.collector.platforms.local.resource_usage import (
    PERIOD_S,
    ProcessTable,
    ProcessUse,
    Quota,
    read_cpu_ns,
    read_process_use,
    read_resident_bytes,
)
from faultset.collector.platforms.objects import rfc3339_ns

_MAX_LINE_BYTES = 16_384


class LogFile:
    """Writes the output of a container in the format of container runtimes."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._partial: dict[str, bytes] = {}

    def write(self, stream: str, data: bytes) -> None:
        """Write output of `stdout` or `stderr`; an incomplete line is kept until it is complete or too long."""
        *lines, rest = (self._partial.get(stream, b"") + data).split(b"\n")
        stamp_ns = time.time_ns()
        entries: list[bytes] = []
        while len(rest) > _MAX_LINE_BYTES:
            entries.append(self._format_line(stamp_ns, stream, "P", rest[:_MAX_LINE_BYTES]))
            rest = rest[_MAX_LINE_BYTES:]
        self._partial[stream] = rest
        entries[:0] = [self._format_line(stamp_ns + n, stream, "F", line) for n, line in enumerate(lines)]
        if entries:
            os.write(self._file, b"".join(entries))

    def close(self) -> None:
        """Write incomplete lines and close the file; may be called twice."""
        if self._file < 0:
            return
        for stream, rest in self._partial.items():
            if rest:
                os.write(self._file, self._format_line(time.time_ns(), stream, "F", rest))
        os.close(self._file)
        self._file = -1

    @staticmethod
    def _format_line(stamp_ns: int, stream: str, flag: str, text: bytes) -> bytes:
        return f"{rfc3339_ns(stamp_ns)} {stream} {flag} ".encode() + text + b"\n"


def container_mark(request: SpawnContainer) -> str:
    """Return the value of the environment variable `FAULTSET_CONTAINER` in a container's processes."""
    return f"{request.uid}/{request.container}/{request.attempt}"


def send_signal(call: Callable[[int, int], None], target: int, number: int) -> bool:
    """Send a signal; return False if the process does not exist."""
    try:
        call(target, number)
    except ProcessLookupError:
        return False
    return True


class Container:
    """A running container: the process group of its main process, and processes that left the group.

    Parameters
    ----------
    pid
        Id of the main process and of its process group.
    oom_events
        How often earlier containers of that name were killed for exceeding their memory limit.
    """

    def __init__(self, request: SpawnContainer, pid: int, *, oom_events: int = 0):
        self.uid, self.pod, self.name, self.attempt = request.uid, request.pod, request.container, request.attempt
        self.pid = pid
        self.log, self.env, self.folder = LogFile(request.log), dict(request.env), request.folder
        self.quota = Quota(limit=request.cpu_limit, cores=len(os.sched_getaffinity(0)))
        self.memory_limit = request.memory_limit
        self.near_memory_limit = False
        self.started_ns = time.time_ns()
        self.oom_events = oom_events
        self.oom_detail = ""
        self.exit_code: int | None = None
        self.exited_ns = 0
        self.members: list[int] = [pid]
        self.mark = container_mark(request)
        self._ended_user_s = self._ended_system_s = 0.0
        self._clocks: dict[int, int] = {}
        self._ended_clocks_ns = 0
        self._ended_disk = [0, 0]
        self._disk: dict[int, tuple[int, int]] = {}
        self._highest: dict[str, float] = {}
        self.next_reading_at = 0.0
        self.read_ns = 0
        self.usage: list[tuple[str, dict[str, str], str, float]] = []

    def signal(self, number: int) -> None:
        send_signal(os.killpg, self.pid, number)
        for pid in self.members:
            if self._has_left(pid):
                send_signal(os.kill, pid, number)

    def exists(self) -> bool:
        """Return whether any process of the container exists."""
        return send_signal(os.killpg, self.pid, 0) or any(send_signal(os.kill, pid, 0) for pid in self.members)

    def _has_left(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) != self.pid
        except ProcessLookupError:
            return False

    def add_ended_process(self, user_s: float, system_s: float) -> None:
        self._ended_user_s += user_s
        self._ended_system_s += system_s

    def set_members(self, members: list[int]) -> None:
        self.members = members
        for pid in self._clocks.keys() - set(members):
            self._ended_clocks_ns += self._clocks.pop(pid)

    def read_cpu_s(self) -> float:
        """Return the CPU seconds of all processes so far, from their process clocks; never decreases."""
        for pid in self.members:
            self._clocks[pid] = max(read_cpu_ns(pid), self._clocks.get(pid, 0))
        return (self._ended_clocks_ns + sum(self._clocks.values())) / 1e9

    def read_resident_bytes(self) -> int:
        return sum(read_resident_bytes(pid)[0] for pid in self.members)

    def read_usage(self) -> None:
        self.read_ns, self.usage = time.time_ns(), self._read_samples()

    def _read_samples(self) -> list[tuple[str, dict[str, str], str, float]]:
        """Return `(metric, labels, kind, value)` with cAdvisor's metric names."""
        uses = {pid: use for pid in self.members if (use := read_process_use(pid)) is not None}
        self._update_disk_bytes(uses)
        resident = sum(use.resident for use in uses.values())
        anonymous = sum(use.anonymous for use in uses.values())
        user = self._ended_user_s + sum(use.user_s for use in uses.values())
        system = self._ended_system_s + sum(use.system_s for use in uses.values())
        cpu = self._ended_user_s + self._ended_system_s + sum(use.cpu_s for use in uses.values())
        samples: list[tuple[str, dict[str, str], str, float]] = [
            ("container_cpu_usage_seconds_total", {"cpu": "total"}, "counter", self._keep_highest("cpu", cpu)),
            ("container_cpu_user_seconds_total", {}, "counter", self._keep_highest("user", user)),
            ("container_cpu_system_seconds_total", {}, "counter", self._keep_highest("system", system)),
            ("container_memory_working_set_bytes", {}, "gauge", resident),
            ("container_memory_usage_bytes", {}, "gauge", resident),
            ("container_memory_rss", {}, "gauge", anonymous),
            ("container_memory_mapped_file", {}, "gauge", resident - anonymous),
            ("container_threads", {}, "gauge", sum(use.threads for use in uses.values())),
            ("container_processes", {}, "gauge", len(uses)),
            ("container_file_descriptors", {}, "gauge", sum(use.descriptors for use in uses.values())),
            ("container_fs_reads_bytes_total", {}, "counter", self._sum_disk_bytes(0)),
            ("container_fs_writes_bytes_total", {}, "counter", self._sum_disk_bytes(1)),
            ("container_start_time_seconds", {}, "gauge", self.started_ns / 1e9),
            ("container_oom_events_total", {}, "counter", self.oom_events),
            ("container_spec_memory_limit_bytes", {}, "gauge", self.memory_limit or 0),
        ]
        if self.quota.limit is not None:
            samples += [
                ("container_spec_cpu_period", {}, "gauge", 100_000),
                ("container_spec_cpu_quota", {}, "gauge", round(self.quota.limit * 100_000)),
                ("container_cpu_cfs_periods_total", {}, "counter", self.quota.periods),
                ("container_cpu_cfs_throttled_periods_total", {}, "counter", self.quota.throttled_periods),
                (
                    "container_cpu_cfs_throttled_seconds_total",
                    {},
                    "counter",
                    self.quota.throttled_so_far(time.monotonic()),
                ),
            ]
        return samples

    def _keep_highest(self, name: str, value: float) -> float:
        """Return the highest value of a counter so far, because a process may end between two samples."""
        self._highest[name] = max(self._highest.get(name, 0.0), value)
        return self._highest[name]

    def _update_disk_bytes(self, uses: Mapping[int, ProcessUse]) -> None:
        for pid in [pid for pid in self._disk if pid not in uses]:
            read, written = self._disk.pop(pid)
            self._ended_disk[0] += read
            self._ended_disk[1] += written
        self._disk |= {pid: (use.read_bytes, use.written_bytes) for pid, use in uses.items()}

    def _sum_disk_bytes(self, direction: int) -> float:
        return float(self._ended_disk[direction] + sum(values[direction] for values in self._disk.values()))


_PERIODS_PER_MEMBER_UPDATE = 10
_PERIODS_PER_MEMORY_CHECK = 10
_PERIODS_PER_NEAR_LIMIT_CHECK = 2
_NEAR_LIMIT_SHARE = 0.5


class Limiter:
    """Enforces the limits of a node's containers; the node must call `run` within `timeout_s`.

    Parameters
    ----------
    containers
        The node's containers by process group, updated by the node.
    """

    def __init__(self, table: ProcessTable, containers: Mapping[int, Container]):
        self._table = table
        self._containers = containers
        self._period_at = self._next_at = time.monotonic() + PERIOD_S
        self._periods = 0
        self._oom_events: dict[tuple[str, str], int] = {}

    def run(self, now: float) -> None:
        """Start a new period if due, and check containers that may have used up their quota."""
        if now < self._next_at:
            return
        if now >= self._period_at:
            self._begin_period(now)
        else:
            for container in self._containers.values():
                if container.quota.is_near_limit:
                    _suspend_or_resume(container, container.quota.check(now, container.read_cpu_s()))
        self._next_at = self._period_at
        for container in self._containers.values():
            if container.quota.is_near_limit and not container.quota.stopped:
                check_s = container.quota.next_check_s(container.read_cpu_s())
                if check_s is not None:
                    self._next_at = min(self._next_at, now + check_s)

    def timeout_s(self, now: float) -> float:
        return self._next_at - now

    def find_members(self) -> None:
        members = self._table.members({group: container.mark for group, container in self._containers.items()})
        for group, container in self._containers.items():
            container.set_members(members[group])

    def oom_events(self, uid: str, container: str) -> int:
        """Return how often a pod's container was killed for exceeding its memory limit, across restarts."""
        return self._oom_events.get((uid, container), 0)

    def _begin_period(self, now: float) -> None:
        self._periods += 1
        self._period_at = max(self._period_at + PERIOD_S, now)
        if self._periods % _PERIODS_PER_MEMBER_UPDATE == 0 or any(
            container.quota.stopped for container in self._containers.values()
        ):
            self.find_members()
        for container in self._containers.values():
            _suspend_or_resume(container, container.quota.begin(now, container.read_cpu_s()))
        if self._periods % _PERIODS_PER_NEAR_LIMIT_CHECK == 0:
            check_all = self._periods % _PERIODS_PER_MEMORY_CHECK == 0
            self._check_memory(
                container for container in self._containers.values() if check_all or container.near_memory_limit
            )

    def _check_memory(self, containers: Iterable[Container]) -> None:
        for container in containers:
            limit = container.memory_limit
            if limit is None or container.oom_detail or container.exit_code is not None:
                continue
            resident = container.read_resident_bytes()
            container.near_memory_limit = resident > _NEAR_LIMIT_SHARE * limit
            if resident > limit:
                container.oom_events += 1
                self._oom_events[container.uid, container.name] = container.oom_events
                container.oom_detail = (
                    f"Memory cgroup out of memory: Killed process {container.pid} of pod {container.pod}, "
                    f"resident:{resident >> 10}kB, limit:{limit >> 10}kB"
                )
                container.signal(signal.SIGKILL)


def _suspend_or_resume(container: Container, stop: bool | None) -> None:
    if stop is not None:
        container.signal(signal.SIGSTOP if stop else signal.SIGCONT)


_READ_BYTES = 1 << 16


class Housekeeping:
    """Reads the resource usage of a node's containers at irregular times, as cAdvisor does.

    The pause between two readings of a container is random, from one to two intervals, like the `jitter` of cAdvisor.
    The interval is half the time between two requests.
    """

    def __init__(self, containers: Mapping[Any, Container]):
        self._containers = containers
        self._interval_s: float | None = None
        self._next_at = math.inf

    def run(self, now: float) -> None:
        """Read the containers that are due; `now` is in monotonic seconds."""
        if self._interval_s is None or now < self._next_at:
            return
        for container in self._containers.values():
            if now >= container.next_reading_at:
                container.read_usage()
                container.next_reading_at = now + self._interval_s * random.uniform(1, 2)
        self._next_at = min((container.next_reading_at for container in self._containers.values()), default=math.inf)

    def readings(self, request: ReadSamples) -> tuple[ContainerSample, ...]:
        """Return the latest samples of each container; new containers are read immediately."""
        self._interval_s, self._next_at = request.interval_s / 2, 0.0
        self.run(time.monotonic())
        return tuple(
            ContainerSample(
                time_ns=container.read_ns,
                pod=container.pod,
                container=container.name,
                metric=metric,
                labels=labels,
                kind=kind,
                value=float(value),
            )
            for container in self._containers.values()
            for metric, labels, kind, value in container.usage
        )

    def timeout_s(self, now: float) -> float:
        return self._next_at - now


class Outputs:
    """Reads the output pipes of containers."""

    def __init__(self, selector: selectors.BaseSelector):
        self._selector = selector
        self._pipes: dict[int, tuple[Container, str]] = {}

    def open(self, container: Container, *, stdout: int, stderr: int) -> None:
        """Copy the output of file descriptors to the container's log until they end or `close` is called."""
        for stream, descriptor in (("stdout", stdout), ("stderr", stderr)):
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = (container, stream)
            self._selector.register(descriptor, selectors.EVENT_READ, lambda _, fd=descriptor: self._read(fd))

    def close(self, container: Container) -> None:
        """Read the rest of a container's output and close its log."""
        for descriptor in [fd for fd, (owner, _) in self._pipes.items() if owner is container]:
            self._read(descriptor)
            self._close_pipe(descriptor)
        container.log.close()

    def _read(self, descriptor: int) -> None:
        container, stream = self._pipes.get(descriptor, (None, ""))
        while container is not None:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._close_pipe(descriptor)
                return
            container.log.write(stream, data)
            if len(data) < _READ_BYTES:
                return

    def _close_pipe(self, descriptor: int) -> None:
        if self._pipes.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)


class Reports:
    """Buffers exit reports until they are polled."""

    def __init__(self) -> None:
        self._reports: list[ContainerExited | JobExited] = []
        self._polls: list[tuple[float, DeferredResponse[tuple[ContainerExited | JobExited, ...]]]] = []

    def add(self, report: ContainerExited | JobExited) -> None:
        self._reports.append(report)

    def poll(self, request: PollExits) -> DeferredResponse[tuple[ContainerExited | JobExited, ...]]:
        """Return a response that contains the reports since the last poll, once there are any."""
        reply = DeferredResponse(request)
        self._polls.append((time.monotonic() + request.timeout_s, reply))
        self.answer(time.monotonic())
        return reply

    def answer(self, now: float) -> None:
        """Answer polls if there are reports or their timeout has passed; `now` is in monotonic seconds."""
        polls, self._polls = self._polls, []
        for deadline, reply in polls:
            if self._reports or now >= deadline:
                reply.resolve(tuple(self._reports))
                self._reports = []
            else:
                self._polls.append((deadline, reply))

    def timeout_s(self, now: float) -> float:
        """Return in how many seconds `answer` must be called again; infinity without polls."""
        return min((deadline for deadline, _ in self._polls), default=math.inf) - now
