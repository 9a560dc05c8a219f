"""One container on the node: a process group of its own, its log file, its limits."""

from __future__ import annotations

import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from faultset.collector.ipc.processes import DeferredAnswer
from faultset.collector.platforms.cluster.context import ContainerExited
from faultset.collector.platforms.local.node.messages import JobExited, PollExits
from faultset.collector.platforms.local.node.resource_usage import (
    PERIOD_S,
    ProcessTable,
    ProcessUse,
    Quota,
    cpu_ns,
    process_use,
    resident_bytes,
)
from faultset.collector.platforms.observation.objects import rfc3339_ns

_LONGEST_LINE = 16_384


class LogFile:
    """Writes what a container prints in the format of container runtimes, one stamped line at a time."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._partial: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> None:
        """Take what was read from `stdout` or `stderr`; an unfinished line waits for its end."""
        *lines, rest = (self._partial.get(stream, b"") + data).split(b"\n")
        stamp_ns = time.time_ns()
        made: list[bytes] = []
        while len(rest) > _LONGEST_LINE:
            made.append(self._line(stamp_ns, stream, "P", rest[:_LONGEST_LINE]))
            rest = rest[_LONGEST_LINE:]
        self._partial[stream] = rest
        made[:0] = [self._line(stamp_ns + n, stream, "F", line) for n, line in enumerate(lines)]
        if made:
            os.write(self._file, b"".join(made))

    def close(self) -> None:
        """Write unfinished lines and close the file; may be called twice."""
        if self._file < 0:
            return
        for stream, rest in self._partial.items():
            if rest:
                os.write(self._file, self._line(time.time_ns(), stream, "F", rest))
        os.close(self._file)
        self._file = -1

    @staticmethod
    def _line(stamp_ns: int, stream: str, flag: str, text: bytes) -> bytes:
        return f"{rfc3339_ns(stamp_ns)} {stream} {flag} ".encode() + text + b"\n"


def send(call: Callable[[int, int], None], target: int, number: int) -> bool:
    """Send a signal; return False when nobody is there to receive it."""
    try:
        call(target, number)
    except ProcessLookupError:
        return False
    return True


class Container:
    """A running container; its processes are the group that its first one leads, and those that left it.

    Parameters
    ----------
    uid, pod, name, attempt
        Whose container it is, and which of its starts.
    pid
        First process and process group.
    memory_limit
        Bytes; the container is killed above it. None for no limit.
    """

    def __init__(
        self,
        *,
        uid: str,
        pod: str,
        name: str,
        attempt: int,
        pid: int,
        log: LogFile,
        env: Mapping[str, str],
        folder: Path,
        cpu_limit: float | None,
        memory_limit: int | None,
        oom_events: int = 0,
    ):
        self.uid, self.pod, self.name, self.attempt, self.pid = uid, pod, name, attempt, pid
        self.log, self.env, self.folder = log, dict(env), folder
        self.quota = Quota(limit=cpu_limit, cores=len(os.sched_getaffinity(0)))
        self.memory_limit = memory_limit
        self.near_memory_limit = False
        self.started_ns = time.time_ns()
        self.oom_events = oom_events
        self.oom_detail = ""
        self.exit_code: int | None = None
        self.exited_ns = 0
        self.members: list[int] = [pid]
        self.mark = f"{uid}/{name}/{attempt}"
        self._ended_user_s = self._ended_system_s = 0.0
        self._clocks: dict[int, int] = {}
        self._ended_clocks_ns = 0
        self._ended_disk = [0, 0]
        self._disk: dict[int, tuple[int, int]] = {}
        self._highest: dict[str, float] = {}

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the container."""
        send(os.killpg, self.pid, number)
        for pid in self.members:
            if self._has_left(pid):
                send(os.kill, pid, number)

    def exists(self) -> bool:
        """Say whether any of its processes is left."""
        return send(os.killpg, self.pid, 0) or any(send(os.kill, pid, 0) for pid in self.members)

    def _has_left(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) != self.pid
        except ProcessLookupError:
            return False

    def ended_process(self, user_s: float, system_s: float) -> None:
        """Count the CPU time of a process of the container that has ended and was reaped by the node."""
        self._ended_user_s += user_s
        self._ended_system_s += system_s

    def set_members(self, members: list[int]) -> None:
        """Take over which processes belong to the container now."""
        self.members = members
        for pid in self._clocks.keys() - set(members):
            self._ended_clocks_ns += self._clocks.pop(pid)

    def quick_cpu_s(self, clock: Callable[[int], int]) -> float:
        """Return the CPU seconds of all processes so far, from their process clocks alone; never falls."""
        for pid in self.members:
            used_ns = clock(pid)
            if used_ns < self._clocks.get(pid, 0):
                used_ns = self._clocks[pid]
            self._clocks[pid] = used_ns
        return (self._ended_clocks_ns + sum(self._clocks.values())) / 1e9

    def resident(self) -> int:
        """Return the resident memory of all members in bytes."""
        return sum(resident_bytes(pid)[0] for pid in self.members)

    def samples(self) -> list[tuple[str, dict[str, str], str, float]]:
        """Return `(metric, labels, kind, value)` under cAdvisor's names."""
        uses = {pid: use for pid in self.members if (use := process_use(pid)) is not None}
        self._count_disk(uses)
        resident = sum(use.resident for use in uses.values())
        anonymous = sum(use.anonymous for use in uses.values())
        user = self._ended_user_s + sum(use.user_s for use in uses.values())
        system = self._ended_system_s + sum(use.system_s for use in uses.values())
        cpu = self._ended_user_s + self._ended_system_s + sum(use.cpu_s for use in uses.values())
        made: list[tuple[str, dict[str, str], str, float]] = [
            ("container_cpu_usage_seconds_total", {"cpu": "total"}, "counter", self._grow("cpu", cpu)),
            ("container_cpu_user_seconds_total", {}, "counter", self._grow("user", user)),
            ("container_cpu_system_seconds_total", {}, "counter", self._grow("system", system)),
            ("container_memory_working_set_bytes", {}, "gauge", resident),
            ("container_memory_usage_bytes", {}, "gauge", resident),
            ("container_memory_rss", {}, "gauge", anonymous),
            ("container_memory_mapped_file", {}, "gauge", resident - anonymous),
            ("container_threads", {}, "gauge", sum(use.threads for use in uses.values())),
            ("container_processes", {}, "gauge", len(uses)),
            ("container_file_descriptors", {}, "gauge", sum(use.descriptors for use in uses.values())),
            ("container_fs_reads_bytes_total", {}, "counter", self._disk_total(0)),
            ("container_fs_writes_bytes_total", {}, "counter", self._disk_total(1)),
            ("container_start_time_seconds", {}, "gauge", self.started_ns / 1e9),
            ("container_oom_events_total", {}, "counter", self.oom_events),
            ("container_spec_memory_limit_bytes", {}, "gauge", self.memory_limit or 0),
        ]
        if self.quota.limit is not None:
            made += [
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
        return made

    def _grow(self, name: str, value: float) -> float:
        """Keep a counter from falling when a process ends between two looks."""
        self._highest[name] = max(self._highest.get(name, 0.0), value)
        return self._highest[name]

    def _count_disk(self, uses: Mapping[int, ProcessUse]) -> None:
        for pid in [pid for pid in self._disk if pid not in uses]:
            read, written = self._disk.pop(pid)
            self._ended_disk[0] += read
            self._ended_disk[1] += written
        self._disk |= {pid: (use.read_bytes, use.written_bytes) for pid, use in uses.items()}

    def _disk_total(self, which: int) -> float:
        return float(self._ended_disk[which] + sum(values[which] for values in self._disk.values()))


_MEMBERS_EVERY = 10
_MEMORY_EVERY = 10
_NEAR_LIMIT_EVERY = 2
_NEAR_LIMIT = 0.5


class Limiter:
    """Holds the limits of all containers of a node; its loop calls `run` at least every `timeout_s`.

    Parameters
    ----------
    table
        Finds the processes of containers.
    containers
        The node's containers by process group, kept current by the node.
    """

    def __init__(self, table: ProcessTable, containers: Mapping[int, Container]):
        self._table = table
        self._containers = containers
        self._period_at = self._next_at = time.monotonic() + PERIOD_S
        self._periods = 0
        self._oom_events: dict[tuple[str, str], int] = {}

    def run(self, now: float) -> None:
        """Begin a period when it is time, and look at containers that may have used up their quota."""
        if now < self._next_at:
            return
        if now >= self._period_at:
            self._begin_period(now)
        else:
            for container in self._containers.values():
                if container.quota.hot:
                    _obey(container, container.quota.check(now, container.quick_cpu_s(cpu_ns)))
        self._next_at = self._period_at
        for container in self._containers.values():
            if container.quota.hot and not container.quota.stopped:
                check_s = container.quota.next_check_s(container.quick_cpu_s(cpu_ns))
                if check_s is not None:
                    self._next_at = min(self._next_at, now + check_s)

    def timeout_s(self, now: float) -> float:
        """Return in how many seconds `run` has to be called again."""
        return self._next_at - now

    def find_members(self) -> None:
        """Find out which processes belong to which container."""
        found = self._table.members({group: container.mark for group, container in self._containers.items()})
        for group, container in self._containers.items():
            container.set_members(found[group])

    def oom_events(self, uid: str, container: str) -> int:
        """Return how often a pod's container was ended for its memory, over all its restarts."""
        return self._oom_events.get((uid, container), 0)

    def _begin_period(self, now: float) -> None:
        self._periods += 1
        self._period_at = max(self._period_at + PERIOD_S, now)
        if self._periods % _MEMBERS_EVERY == 0 or any(found.quota.stopped for found in self._containers.values()):
            self.find_members()
        for container in self._containers.values():
            _obey(container, container.quota.begin(now, container.quick_cpu_s(cpu_ns)))
        if self._periods % _NEAR_LIMIT_EVERY == 0:
            everyone = self._periods % _MEMORY_EVERY == 0
            self._check_memory(found for found in self._containers.values() if everyone or found.near_memory_limit)

    def _check_memory(self, containers: Iterable[Container]) -> None:
        for container in containers:
            limit = container.memory_limit
            if limit is None or container.oom_detail or container.exit_code is not None:
                continue
            resident = container.resident()
            container.near_memory_limit = resident > _NEAR_LIMIT * limit
            if resident > limit:
                container.oom_events += 1
                self._oom_events[container.uid, container.name] = container.oom_events
                container.oom_detail = (
                    f"Memory cgroup out of memory: Killed process {container.pid} of pod {container.pod}, "
                    f"resident:{resident >> 10}kB, limit:{limit >> 10}kB"
                )
                container.signal(signal.SIGKILL)


def _obey(container: Container, stop: bool | None) -> None:
    if stop is not None:
        container.signal(signal.SIGSTOP if stop else signal.SIGCONT)


_READ = 1 << 16


class Outputs:
    """Pipes of all containers, read as soon as something comes.

    Parameters
    ----------
    selector
        Loop of the node.
    """

    def __init__(self, selector: selectors.BaseSelector):
        self._selector = selector
        self._pipes: dict[int, tuple[Container, str]] = {}

    def open(self, container: Container, *, stdout: int, stderr: int) -> None:
        """Read from the file descriptors into the container's log, until both have ended or `close` is called."""
        for stream, descriptor in (("stdout", stdout), ("stderr", stderr)):
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = (container, stream)
            self._selector.register(descriptor, selectors.EVENT_READ, lambda _, fd=descriptor: self._read(fd))

    def close(self, container: Container) -> None:
        """Read what is left of a container's output and close its log."""
        for descriptor in [fd for fd, (owner, _) in self._pipes.items() if owner is container]:
            self._read(descriptor)
            self._close_pipe(descriptor)
        container.log.close()

    def _read(self, descriptor: int) -> None:
        container, stream = self._pipes.get(descriptor, (None, ""))
        while container is not None:
            try:
                data = os.read(descriptor, _READ)
            except BlockingIOError:
                return
            if not data:
                self._close_pipe(descriptor)
                return
            container.log.feed(stream, data)
            if len(data) < _READ:
                return

    def _close_pipe(self, descriptor: int) -> None:
        if self._pipes.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)


class Reports:
    """Reports that nobody has asked for yet, and polls that wait for one."""

    def __init__(self) -> None:
        self._reports: list[ContainerExited | JobExited] = []
        self._polls: list[tuple[float, DeferredAnswer[tuple[ContainerExited | JobExited, ...]]]] = []

    def add(self, report: ContainerExited | JobExited) -> None:
        """Keep a report until the next `answer`."""
        self._reports.append(report)

    def poll(self, request: PollExits) -> DeferredAnswer[tuple[ContainerExited | JobExited, ...]]:
        """Answer with what has happened since the last poll, at once or when something does."""
        reply = DeferredAnswer(request)
        self._polls.append((time.monotonic() + request.timeout_s, reply))
        self.answer(time.monotonic())
        return reply

    def answer(self, now: float) -> None:
        """Answer polls that have waited for a report, or long enough; `now` is in monotonic seconds."""
        waiting, self._polls = self._polls, []
        for deadline, reply in waiting:
            if self._reports or now >= deadline:
                reply.resolve(tuple(self._reports))
                self._reports = []
            else:
                self._polls.append((deadline, reply))

    def timeout_s(self, now: float) -> float:
        """Return in how many seconds `answer` has to be called again; infinity without polls."""
        return min((deadline for deadline, _ in self._polls), default=math.inf) - now
