"""Tasks and rounds of background work, and `faultset-work cpu|stop`, which starts and ends busy loops."""

from __future__ import annotations

import argparse
import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span

from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.status import BadRequest, RpcError
from faultset.collector.runtime.processes import ShouldContinue, begin_work, end_work
from faultset.collector.runtime.steps.step import compile_steps
from faultset.collector.runtime.tracing import NO_PARENT, build_trace_context, fail, format_ids
from faultset.collector.spec.features.behaviour import BackgroundWork, Task

WorkSpan = tuple[Span, Context]
"""A span, and the context for its children."""

Round = Callable[[dict[str, Any], WorkSpan | None], Awaitable[bool]]
"""Function that runs one round with values and a span, ends the span, and returns whether the steps succeeded."""


def compile_round(name: str, work: BackgroundWork, service: ServiceContext) -> Round:
    """Return the function that runs one round of a consumer or task.

    Parameters
    ----------
    name
        Name in the spec, the default of the location in log lines.
    """
    location = work.location or name
    steps = compile_steps(work.steps, service, location)

    async def attempt(values: dict[str, Any], context: Context) -> str | None:
        """Run the steps; return the error, or None if they succeeded."""
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

    async def run(values: dict[str, Any], work_span: WorkSpan | None) -> bool:
        span, context = work_span or (None, Context())
        if work.log:
            service.log.trace(location, work.log if span is None else f"{work.log} {format_ids(span)}")
        try:
            failure = await attempt(values, context)
            if failure is not None:
                service.log.error(location, f"{name} failed: {failure}")
                if span is not None and service.persona.spans.reports_outcome:
                    fail(span, failure)
            return failure is None
        finally:
            if span is not None:
                span.end()

    return run


async def run_task(name: str, task: Task, service: ServiceContext) -> None:
    """Run a task every `every_s` seconds forever, the first time after one interval."""
    run_round = compile_round(name, task, service)
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    while True:
        due_s = max(due_s + task.every_s, loop.time())
        await asyncio.sleep(due_s - loop.time())
        await run_round({}, _start_span(task, service))


def _start_span(task: Task, service: ServiceContext) -> WorkSpan | None:
    if task.span is None:
        return None
    span = service.tracing.internal(task.span, NO_PARENT)
    return span, build_trace_context(span)


def main(argv: Sequence[str] | None = None) -> int:
    """Start or stop busy loops; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-work", description="Keep processors busy.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cpu = verbs.add_parser("cpu", help="start busy loops in the background and return")
    cpu.add_argument("--workers", type=int, default=1)
    cpu.add_argument("--seconds", type=float, required=True, help="time after which the loops end")
    cpu.add_argument("--pid-file", type=Path, required=True)
    stop = verbs.add_parser("stop", help="end the processes listed in the pid file")
    stop.add_argument("--pid-file", type=Path, required=True)
    arguments = parser.parse_args(argv)
    if arguments.verb == "stop":
        end_work(arguments.pid_file)
        return 0
    if arguments.workers < 1 or arguments.seconds <= 0:
        print("Error: --workers must be at least 1 and --seconds above zero", file=sys.stderr)
        return 2
    begin_work(_loop, workers=arguments.workers, seconds=arguments.seconds, pid_file=arguments.pid_file)
    return 0


def _loop(should_continue: ShouldContinue) -> None:
    while should_continue():
        for _ in range(100_000):
            pass


if __name__ == "__main__":
    sys.exit(main())
