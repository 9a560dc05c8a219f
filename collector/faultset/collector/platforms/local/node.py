"""The node of the local platform: forks containers, reaps them, captures their output, holds their limits.

One thread, one selector loop, no asyncio and no grpc, so that forking is safe at any time. Programs are imported
before the first fork; a container starts in milliseconds and shares their pages.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.platforms.local.containers import Container, LogFile, become, send
from faultset.collector.platforms.local.executions import Execution
from faultset.collector.platforms.local.launch import adopt_orphans, call, die_with_parent
from faultset.collector.platforms.local.limiting import Limiter
from faultset.collector.platforms.local.programs import PRELOADED, PROGRAMS, find_program
from faultset.collector.platforms.local.rpc import Deferred, Server
from faultset.collector.platforms.local.usage import MARK, ProcessTable

_READ = 1 << 16


class Node:
    """All containers of one episode.

    Parameters
    ----------
    socket_path
        Where requests are answered.
    """

    def __init__(self, socket_path: Path):
        self._selector = selectors.DefaultSelector()
        self._containers: dict[tuple[str, str], Container] = {}
        self._by_group: dict[int, Container] = {}
        self._executions: dict[int, Execution] = {}
        self._pipes: dict[int, tuple[Container, str]] = {}
        self._jobs: dict[int, str] = {}
        self._reports: list[dict[str, Any]] = []
        self._polls: list[tuple[float, Deferred]] = []
        self._stopping = False
        self._table = ProcessTable(os.getpid())
        self._limiter = Limiter(self._table, self._by_group)
        self._wake()
        verbs = (
            self.start,
            self.signal,
            self.limit,
            self.poll,
            self.exec,
            self.stats,
            self.run,
            self.signal_job,
            self.shutdown,
        )
        Server(socket_path, self._selector, {verb.__name__: verb for verb in verbs})

    def serve(self) -> None:
        """Run until `shutdown` or SIGTERM, then end all processes."""
        signal.signal(signal.SIGTERM, lambda *_: self.shutdown())
        while not self._stopping:
            for key, mask in self._selector.select(self._timeout()):
                key.data(mask)
            now = time.monotonic()
            self._limiter.run(now)
            self._expire(now)
        self.end_all()

    def start(
        self,
        *,
        uid: str,
        pod: str,
        container: str,
        attempt: int,
        argv: Sequence[str],
        env: Mapping[str, str],
        folder: str,
        log: str,
        cpu_limit: float | None = None,
        memory_limit: int | None = None,
    ) -> dict[str, Any]:
        """Fork a container; return its pid and start time, or why its program cannot be run."""
        program = self._program(argv, env)
        if program is None:
            return {"error": f'exec: "{argv[0] if argv else ""}": executable file not found in $PATH'}
        out, err = os.pipe(), os.pipe()
        node, pid = os.getpid(), os.fork()
        if pid == 0:
            marked = {**env, MARK: f"{uid}/{container}/{attempt}"}
            become(program, argv, parent=node, group=0, output=(out[1], err[1]), env=marked, folder=Path(folder))
        _join(pid, pid)
        os.close(out[1])
        os.close(err[1])
        made = Container(
            uid=uid,
            pod=pod,
            name=container,
            attempt=attempt,
            pid=pid,
            log=LogFile(Path(log)),
            env=env,
            folder=Path(folder),
            cpu_limit=cpu_limit,
            memory_limit=memory_limit,
            oom_events=self._limiter.oom_events(uid, container),
        )
        self._containers[(uid, container)] = self._by_group[pid] = made
        for stream, descriptor in (("stdout", out[0]), ("stderr", err[0])):
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = (made, stream)
            self._selector.register(descriptor, selectors.EVENT_READ, lambda _, fd=descriptor: self._capture(fd))
        return {"pid": pid, "time_ns": made.started_ns}

    def signal(self, uid: str, container: str, signal_name: str, main_only: bool = False) -> bool:
        """Send a signal to a container, or to its first process only; return whether it runs."""
        found = self._containers.get((uid, container))
        if found is None:
            return False
        number = getattr(signal, f"SIG{signal_name}")
        if main_only:
            os.kill(found.pid, number)
        else:
            found.signal(number)
        return True

    def limit(self, uid: str, container: str, cpu_limit: float | None, memory_limit: int | None) -> bool:
        """Change the limits of a running container; return whether it runs."""
        found = self._containers.get((uid, container))
        if found is not None:
            found.quota.limit, found.memory_limit = cpu_limit, memory_limit
        return found is not None

    def poll(self, timeout_s: float) -> Deferred:
        """Answer with what has happened since the last poll, at once or when something does."""
        reply = Deferred()
        self._polls.append((time.monotonic() + timeout_s, reply))
        self._answer_polls(time.monotonic())
        return reply

    def exec(self, uid: str, container: str, argv: Sequence[str], timeout_s: float = 30.0) -> Deferred:
        """Run a command in a container's process group; answer with its exit code and output when it ends."""
        reply = Deferred()
        found = self._containers.get((uid, container))
        if found is None or found.exit_code is not None:
            reply.fail(f"container {container} does not run")
            return reply
        program = find_program(list(argv), found.env.get("PATH", ""))
        if program is None:
            reply.fail(f'exec: "{argv[0]}": executable file not found in $PATH')
            return reply
        output = os.pipe()
        node, pid = os.getpid(), os.fork()
        if pid == 0:
            env, ends = {**found.env, MARK: found.mark}, (output[1], output[1])
            become(program, argv, parent=node, group=found.pid, output=ends, env=env, folder=found.folder)
        _join(pid, found.pid)
        os.close(output[1])
        found.members.append(pid)
        deadline = time.monotonic() + timeout_s
        self._executions[pid] = Execution(
            pid, found, reply, deadline=deadline, output=output[0], selector=self._selector
        )
        return reply

    def stats(self) -> list[dict[str, Any]]:
        """Return samples of every running container under cAdvisor's names."""
        self._limiter.find_members()
        rows = []
        for container in self._containers.values():
            time_ns = time.time_ns()
            rows += [
                {
                    "pod": container.pod,
                    "container": container.name,
                    "metric": metric,
                    "labels": labels,
                    "kind": kind,
                    "value": value,
                    "time_ns": time_ns,
                }
                for metric, labels, kind, value in container.samples()
            ]
        return rows

    def run(self, *, name: str, function: str, argv: Sequence[str], env: Mapping[str, str], log: str) -> int:
        """Fork a process that belongs to no pod, such as the load; its end is reported under `name`."""
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        node, pid = os.getpid(), os.fork()
        if pid == 0:
            become(
                lambda arguments: call(function, [arguments]),
                [name, *argv],
                parent=node,
                group=0,
                output=(output, output),
                env=env,
                folder=Path(log).parent,
            )
        _join(pid, pid)
        os.close(output)
        self._jobs[pid] = name
        return pid

    def signal_job(self, name: str, signal_name: str) -> bool:
        """Send a signal to a process that was started by `run`; return whether it runs."""
        pids = [pid for pid, job in self._jobs.items() if job == name]
        for pid in pids:
            send(os.kill, pid, getattr(signal, f"SIG{signal_name}"))
        return bool(pids)

    def shutdown(self) -> bool:
        """Leave the loop; all processes are ended then."""
        self._stopping = True
        return True

    def end_all(self) -> None:
        """Kill every descendant, also those that have left their groups."""
        while remaining := self._table.descendants():
            for pid in remaining:
                send(os.kill, pid, signal.SIGKILL)
            while True:
                try:
                    if os.waitpid(-1, os.WNOHANG) == (0, 0):
                        break
                except ChildProcessError:
                    return
            time.sleep(0.002)

    def _program(self, argv: Sequence[str], env: Mapping[str, str]) -> Any:
        if not argv:
            return None
        if argv[0] in PROGRAMS:
            return lambda arguments: call(PROGRAMS[argv[0]], [arguments])
        return find_program(list(argv), env.get("PATH", ""))

    def _wake(self) -> None:
        """Have the loop wake up when a child ends."""
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._wakeup = (reader, writer)
        self._selector.register(reader, selectors.EVENT_READ, self._reap)

    def _reap(self, _: int) -> None:
        self._wakeup[0].recv(_READ)
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if ended is None:
                break
            pid = ended.si_pid
            try:
                group = os.getpgid(pid)
            except ProcessLookupError:
                group = 0
            _, status, used = os.wait4(pid, 0)
            self._ended(pid, group, os.waitstatus_to_exitcode(status), used.ru_utime, used.ru_stime)
        self._finish_containers()

    def _ended(self, pid: int, group: int, code: int, user_s: float, system_s: float) -> None:
        if pid in self._jobs:
            self._reports.append({"job": self._jobs.pop(pid), "exit_code": code, "time_ns": time.time_ns()})
            return
        container = self._by_group.get(group) or next(
            (found for found in self._containers.values() if pid in found.members), None
        )
        if container is None:
            return
        container.ended_process(user_s, system_s)
        if pid in container.members:
            container.members.remove(pid)
        execution = self._executions.pop(pid, None)
        if execution is not None:
            execution.ended(code)
        if pid == container.pid:
            container.exit_code = 128 - code if code < 0 else code
            container.exited_ns = time.time_ns()
            self._limiter.find_members()
            container.signal(signal.SIGKILL)

    def _finish_containers(self) -> None:
        """Report containers once the last of their processes is gone, so that their addresses are free again."""
        for key, container in list(self._containers.items()):
            if container.exit_code is None or container.exists():
                continue
            del self._containers[key], self._by_group[container.pid]
            for descriptor in [fd for fd, (owner, _) in self._pipes.items() if owner is container]:
                self._capture(descriptor)
                self._close_pipe(descriptor)
            container.log.close()
            for execution in [found for found in self._executions.values() if found.container is container]:
                del self._executions[execution.pid]
                execution.fail(f"container {container.name} ended")
            self._reports.append(
                {
                    "uid": container.uid,
                    "container": container.name,
                    "attempt": container.attempt,
                    "time_ns": container.exited_ns,
                    "exit_code": container.exit_code,
                    "out_of_memory": bool(container.oom_detail),
                    "detail": container.oom_detail,
                }
            )
        self._answer_polls(time.monotonic())

    def _capture(self, descriptor: int) -> None:
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

    def _timeout(self) -> float:
        now = time.monotonic()
        until = self._limiter.timeout_s(now)
        if self._polls:
            until = min(until, min(deadline for deadline, _ in self._polls) - now)
        return max(0.0, until)

    def _answer_polls(self, now: float) -> None:
        waiting, self._polls = self._polls, []
        for deadline, reply in waiting:
            if self._reports or now >= deadline:
                reply.resolve(self._reports)
                self._reports = []
            else:
                self._polls.append((deadline, reply))

    def _expire(self, now: float) -> None:
        if self._polls or self._reports:
            self._answer_polls(now)
        for execution in self._executions.values():
            execution.expire(now)


def _join(pid: int, group: int) -> None:
    """Put a child into its group from this side too, so that it is there when fork returns."""
    try:
        os.setpgid(pid, group)
    except (PermissionError, ProcessLookupError):
        return


def main(socket_path: str, preload: Sequence[str] = PRELOADED) -> None:
    """Import the programs, then serve until told to shut down or the parent ends.

    Parameters
    ----------
    socket_path
        Where requests are answered; exists once the node is ready.
    preload
        Modules to import before the first fork.
    """
    adopt_orphans()
    die_with_parent(os.getppid(), signal.SIGTERM)
    for module in preload:
        importlib.import_module(module)
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise RuntimeError(f"importing the programs started threads ({names}), so forking is not safe")
    gc.collect()
    gc.freeze()
    Node(Path(socket_path)).serve()
