"""The node of the embedded platform: starts containers, enforces their limits and reports their end.

It has one thread and one selector loop, without asyncio or gRPC, so that it can fork safely. The launcher has already
imported the containers' programs, so a container starts in milliseconds and shares the memory of their modules.
"""

from __future__ import annotations

import gc
import os
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from faultset.collector.ipc.channel import DeferredResponse, Handlers, Server
from faultset.collector.ipc.launcher import call_function, check_single_thread, spawn
from faultset.collector.platforms.cluster.context import ContainerExited, LimitContainer, SignalContainer
from faultset.collector.platforms.local.containers import (
    Container,
    Housekeeping,
    Limiter,
    Outputs,
    Reports,
    container_mark,
    send_signal,
)
from faultset.collector.platforms.local.messages import (
    ContainerProcess,
    Execute,
    ExecutionResult,
    JobExited,
    PollExits,
    ReadSamples,
    RunJob,
    ShutDown,
    SignalJob,
    SpawnContainer,
)
from faultset.collector.platforms.local.resource_usage import MARK, ProcessTable
from faultset.core.processes import adopt_orphans, die_with_parent

_READ_BYTES = 1 << 16


class ChildExit(NamedTuple):
    """The exit of a child; `group` is 0 if it is unknown."""

    pid: int
    group: int
    code: int
    user_s: float
    system_s: float


class Reaper:
    """Wakes the event loop when children end, including adopted ones.

    Parameters
    ----------
    on_exit
        Called for each child that has ended.
    on_done
        Called after `on_exit` has been called for all of them.
    """

    def __init__(
        self, selector: selectors.BaseSelector, on_exit: Callable[[ChildExit], None], on_done: Callable[[], None]
    ):
        self._on_exit, self._on_done = on_exit, on_done
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._wakeup = (reader, writer)
        selector.register(reader, selectors.EVENT_READ, self._reap)

    def _reap(self, _: int) -> None:
        self._wakeup[0].recv(_READ_BYTES)
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if child is None:
                break
            pid = child.si_pid
            try:
                group = os.getpgid(pid)
            except ProcessLookupError:
                group = 0
            _, status, usage = os.wait4(pid, 0)
            self._on_exit(ChildExit(pid, group, os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_stime))
        self._on_done()


def kill_descendants(table: ProcessTable) -> None:
    while remaining := table.descendants():
        for pid in remaining:
            send_signal(os.kill, pid, signal.SIGKILL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    break
            except ChildProcessError:
                return
        time.sleep(0.002)


class Execution:
    """A command that runs in a container; it counts as ended even if background processes remain.

    Parameters
    ----------
    deadline
        Monotonic time in seconds at which the command is killed.
    output
        File descriptor of the command's output; closed here.
    """

    def __init__(
        self,
        pid: int,
        container: Container,
        reply: DeferredResponse[ExecutionResult],
        *,
        deadline: float,
        output: int,
        selector: selectors.BaseSelector,
    ):
        self.pid, self.container, self._reply, self._deadline = pid, container, reply, deadline
        self._output, self._selector, self._text = output, selector, b""
        os.set_blocking(output, False)
        selector.register(output, selectors.EVENT_READ, lambda _: self._capture())

    def finish(self, code: int) -> None:
        """Send the exit code and the output so far as the response."""
        self._capture()
        self._close()
        self._reply.resolve(ExecutionResult(code=code, output=self._text.decode(errors="replace")))

    def fail(self, reason: str) -> None:
        self._close()
        self._reply.fail(reason)

    def expire(self, now: float) -> None:
        """Kill the command if its deadline has passed."""
        if now >= self._deadline:
            self._reply.fail("the command did not finish before its timeout")
            send_signal(os.kill, self.pid, signal.SIGKILL)

    def _capture(self) -> None:
        if self._output < 0:
            return
        try:
            while data := os.read(self._output, _READ_BYTES):
                self._text += data
        except BlockingIOError:
            return
        self._close()

    def _close(self) -> None:
        if self._output >= 0:
            self._selector.unregister(self._output)
            os.close(self._output)
            self._output = -1


PROGRAMS: dict[str, str] = {
    "faultset-service": "faultset.collector.runtime.service:main",
    "faultset-store": "faultset.collector.runtime.stores.server:main",
    "faultset-wait": "faultset.collector.runtime.http.client:main",
}
"""Programs that run as a fork of the node, which has already imported them."""


def find_program(argv: tuple[str, ...] | list[str], path: str) -> str | None:
    """Return the file that a command executes, or None if `path` does not contain it."""
    return shutil.which(argv[0], path=path)


class Node:
    """The containers of one episode."""

    def __init__(self, socket_path: Path):
        self._selector = selectors.DefaultSelector()
        self._containers: dict[tuple[str, str], Container] = {}
        self._by_group: dict[int, Container] = {}
        self._executions: dict[int, Execution] = {}
        self._outputs = Outputs(self._selector)
        self._jobs: dict[int, str] = {}
        self._reports = Reports()
        self._stopping = False
        self._table = ProcessTable(os.getpid())
        self._limiter = Limiter(self._table, self._by_group)
        self._housekeeping = Housekeeping(self._containers)
        self._reaper = Reaper(self._selector, self._handle_exit, self._finish_containers)
        handlers: Handlers = {
            SpawnContainer: self.spawn,
            SignalContainer: self.signal,
            LimitContainer: self.limit,
            PollExits: self._reports.poll,
            Execute: self.execute,
            ReadSamples: self._housekeeping.readings,
            RunJob: self.run_job,
            SignalJob: self.signal_job,
            ShutDown: self.shut_down,
        }
        Server(socket_path, self._selector, handlers)

    def serve(self) -> None:
        """Run until `shut_down` or SIGTERM, then kill all processes."""
        signal.signal(signal.SIGTERM, lambda *_: self.shut_down(ShutDown()))
        while not self._stopping:
            for key, mask in self._selector.select(self._timeout()):
                key.data(mask)
            now = time.monotonic()
            self._limiter.run(now)
            self._housekeeping.run(now)
            self._reports.answer(now)
            for execution in self._executions.values():
                execution.expire(now)
        kill_descendants(self._table)

    def spawn(self, request: SpawnContainer) -> ContainerProcess:
        """Start a container; return its main process, or the reason why it did not start."""
        argv = request.argv
        program = self._find_program(argv, request.env)
        if program is None:
            return ContainerProcess(error=f'exec: "{argv[0] if argv else ""}": executable file not found in $PATH')
        out, err = os.pipe(), os.pipe()
        env = {**request.env, MARK: container_mark(request)}
        output = (out[1], err[1])
        pid = spawn(program, argv, group=0, output=output, env=env, folder=request.folder, delay_s=request.program_s)
        container = Container(request, pid, oom_events=self._limiter.oom_events(request.uid, request.container))
        self._containers[(request.uid, request.container)] = self._by_group[pid] = container
        self._outputs.open(container, stdout=out[0], stderr=err[0])
        return ContainerProcess(pid=pid, started_ns=container.started_ns)

    def signal(self, request: SignalContainer) -> bool:
        """Send a signal to a container or only to its main process; return whether the container is running."""
        container = self._containers.get((request.uid, request.container))
        if container is None:
            return False
        number = getattr(signal, f"SIG{request.signal}")
        if request.main_only:
            os.kill(container.pid, number)
        else:
            container.signal(number)
        return True

    def limit(self, request: LimitContainer) -> bool:
        """Change the limits of a container; return whether the container is running."""
        container = self._containers.get((request.uid, request.container))
        if container is not None:
            container.quota.limit, container.memory_limit = request.cpu_limit, request.memory_limit
        return container is not None

    def execute(self, request: Execute) -> DeferredResponse[ExecutionResult]:
        """Run a command in a container; the response is sent when the command ends."""
        reply = DeferredResponse(request)
        container = self._containers.get((request.uid, request.container))
        if container is None or container.exit_code is not None:
            reply.fail(f"container {request.container} is not running")
            return reply
        program = find_program(list(request.argv), container.env.get("PATH", ""))
        if program is None:
            reply.fail(f'exec: "{request.argv[0]}": executable file not found in $PATH')
            return reply
        reader, writer = os.pipe()
        env = {**container.env, MARK: container.mark}
        output = (writer, writer)
        pid = spawn(program, request.argv, group=container.pid, output=output, env=env, folder=container.folder)
        container.members.append(pid)
        deadline = time.monotonic() + request.timeout_s
        self._executions[pid] = Execution(
            pid, container, reply, deadline=deadline, output=reader, selector=self._selector
        )
        return reply

    def run_job(self, request: RunJob) -> int:
        """Start a process outside pods, such as the load generator; return its process id."""
        output = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        pid = spawn(
            lambda arguments: call_function(request.function, [arguments]),
            [request.name, *request.argv],
            group=0,
            output=(output, output),
            env=request.env,
            folder=request.log.parent,
        )
        self._jobs[pid] = request.name
        return pid

    def signal_job(self, request: SignalJob) -> bool:
        """Send a signal to a process outside pods; return whether the process is running."""
        pids = [pid for pid, job in self._jobs.items() if job == request.name]
        for pid in pids:
            send_signal(os.kill, pid, getattr(signal, f"SIG{request.signal}"))
        return bool(pids)

    def shut_down(self, request: ShutDown) -> bool:
        """End the loop; `serve` then kills all processes."""
        self._stopping = True
        return True

    def _find_program(self, argv: Sequence[str], env: Mapping[str, str]) -> Any:
        if not argv:
            return None
        if argv[0] in PROGRAMS:
            return lambda arguments: call_function(PROGRAMS[argv[0]], [arguments])
        return find_program(list(argv), env.get("PATH", ""))

    def _handle_exit(self, child: ChildExit) -> None:
        pid, code = child.pid, child.code
        if pid in self._jobs:
            self._reports.add(JobExited(job=self._jobs.pop(pid), exit_code=code, time_ns=time.time_ns()))
            return
        container = self._by_group.get(child.group) or next(
            (candidate for candidate in self._containers.values() if pid in candidate.members), None
        )
        if container is None:
            return
        container.add_ended_process(child.user_s, child.system_s)
        if pid in container.members:
            container.members.remove(pid)
        execution = self._executions.pop(pid, None)
        if execution is not None:
            execution.finish(code)
        if pid == container.pid:
            container.exit_code = 128 - code if code < 0 else code
            container.exited_ns = time.time_ns()
            self._limiter.find_members()
            container.signal(signal.SIGKILL)

    def _finish_containers(self) -> None:
        """Report containers whose last process has ended; only then are their addresses free again."""
        for key, container in list(self._containers.items()):
            if container.exit_code is None or container.exists():
                continue
            del self._containers[key], self._by_group[container.pid]
            self._outputs.close(container)
            for execution in [entry for entry in self._executions.values() if entry.container is container]:
                del self._executions[execution.pid]
                execution.fail(f"container {container.name} ended")
            self._reports.add(
                ContainerExited(
                    uid=container.uid,
                    container=container.name,
                    attempt=container.attempt,
                    time_ns=container.exited_ns,
                    exit_code=container.exit_code,
                    out_of_memory=bool(container.oom_detail),
                    detail=container.oom_detail,
                )
            )
        self._reports.answer(time.monotonic())

    def _timeout(self) -> float:
        now = time.monotonic()
        return max(0.0, min(task.timeout_s(now) for task in (self._limiter, self._housekeeping, self._reports)))


def main(socket_path: str) -> None:
    """Serve until `ShutDown` or the end of the parent; the launcher has imported the programs."""
    adopt_orphans()
    die_with_parent(os.getppid(), signal.SIGTERM)
    check_single_thread()
    gc.collect()
    gc.freeze()
    Node(Path(socket_path)).serve()
