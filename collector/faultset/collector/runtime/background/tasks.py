"""Tasks of a service: steps that are carried out again and again."""

from __future__ import annotations

import asyncio

from faultset.collector.runtime.background.rounds import Started, compile_round
from faultset.collector.runtime.context import ServiceContext
from faultset.collector.runtime.signals.tracing import NO_PARENT, context_of
from faultset.collector.spec.features.background import Task


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
