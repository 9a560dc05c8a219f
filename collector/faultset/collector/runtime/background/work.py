"""`faultset-work cpu|stop`: busy loops in the background, and the end of what runs there."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span

from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.status import BadRequest, RpcError
from faultset.collector.runtime.steps.step import compile_steps
from faultset.collector.runtime.tracing import NO_PARENT, context_of, fail, ids_of
from faultset.collector.spec.features.behaviour import BackgroundWork, Task

IsWanted = Callable[[], bool]
"""Says whether the work is to go on."""


def begin_work(body: Callable[[IsWanted], None], *, workers: int, seconds: float, pid_file: Path) -> None:
    """Start processes that do something until they are no longer wanted; return at once.

    Parameters
    ----------
    body
        Does it, and looks often whether it is still wanted.
    seconds
        After which they end by themselves.
    pid_file
        Written with what `end_work` needs to know.
    """
    end = time.monotonic() + seconds
    pids = []
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            _work(body, end)
        pids.append(pid)
    pid_file.write_text("\n".join(f"{pid} {_started(pid)}" for pid in pids) + "\n", encoding="ascii")


def end_work(pid_file: Path) -> None:
    """End the processes that a pid file names; nothing happens when there are none."""
    for pid in running_work(pid_file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pid_file.unlink(missing_ok=True)


def running_work(pid_file: Path) -> list[int]:
    """Return those of the processes that a pid file names which run."""
    try:
        lines = pid_file.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    named = [(int(pid), started) for pid, started in (line.split() for line in lines)]
    return [pid for pid, started in named if _started(pid) == started != "0"]


def _work(body: Callable[[IsWanted], None], end: float) -> None:
    """Work until the end, or until whoever adopted this process is gone too."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parents = [os.getppid()]

    def is_wanted() -> bool:
        if os.getppid() != parents[-1]:
            parents.append(os.getppid())
        return time.monotonic() < end and len(parents) < 3

    with contextlib.suppress(Exception):
        body(is_wanted)
    os._exit(0)


def _started(pid: int) -> str:
    """Start time of a process in clock ticks; a pid that was given to another one has another."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            return fields[19]
    return "0"


Started = tuple[Span, Context]
"""A span and the context under which its children are made."""

Round = Callable[[dict[str, Any], Started | None], Awaitable[bool]]
"""Carries out one round with values under a span, ends the span, and says whether the steps went well."""


def compile_round(name: str, work: BackgroundWork, service: ServiceContext) -> Round:
    """Return the function that carries out one round of a consumer or task.

    Parameters
    ----------
    name
        Its name, which log lines show where the spec gives no location.
    """
    location = work.location or name
    steps = compile_steps(work.steps, service, location)

    async def attempt(values: dict[str, Any], context: Context) -> str | None:
        """Carry out the steps; return why they failed."""
        try:
            if work.work_ms:
                service.cpu.work(work.work_ms)
            await steps(RequestContext(values=values, trace=context))
        except (RpcError, BadRequest) as error:
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return str(error) or type(error).__name__
        return None

    async def run(values: dict[str, Any], started: Started | None) -> bool:
        span, context = started or (None, Context())
        if work.log:
            service.log.trace(location, work.log if span is None else f"{work.log} {ids_of(span)}")
        try:
            failure = await attempt(values, context)
            if failure is not None:
                service.log.error(location, f"{name} failed: {failure}")
                if span is not None and service.persona.spans.tell_outcome:
                    fail(span, failure)
            return failure is None
        finally:
            if span is not None:
                span.end()

    return run


async def run_task(name: str, task: Task, service: ServiceContext) -> None:
    """Carry out a task for ever, from `every_s` seconds after the start on."""
    run_round = compile_round(name, task, service)
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    while True:
        due_s = max(due_s + task.every_s, loop.time())
        await asyncio.sleep(due_s - loop.time())
        await run_round({}, _span(task, service))


def _span(task: Task, service: ServiceContext) -> Started | None:
    if task.span is None:
        return None
    span = service.tracing.internal(task.span, NO_PARENT)
    return span, context_of(span)


def main(argv: Sequence[str] | None = None) -> int:
    """Start or stop work; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-work", description="Keep processors busy.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cpu = verbs.add_parser("cpu", help="start busy loops in the background and return")
    cpu.add_argument("--workers", type=int, default=1)
    cpu.add_argument("--seconds", type=float, required=True, help="after which they end by themselves")
    cpu.add_argument("--pid-file", type=Path, required=True)
    stop = verbs.add_parser("stop", help="end what the pid file names")
    stop.add_argument("--pid-file", type=Path, required=True)
    arguments = parser.parse_args(argv)
    if arguments.verb == "stop":
        end_work(arguments.pid_file)
        return 0
    if arguments.workers < 1 or arguments.seconds <= 0:
        print("Error: work needs at least one worker and a length above zero", file=sys.stderr)
        return 2
    begin_work(_loop, workers=arguments.workers, seconds=arguments.seconds, pid_file=arguments.pid_file)
    return 0


def _loop(is_wanted: IsWanted) -> None:
    while is_wanted():
        for _ in range(100_000):
            pass


if __name__ == "__main__":
    sys.exit(main())
