"""Progress of a campaign on standard error: bars on a terminal, a line for each ended episode otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from faultset.collector.campaigns.campaign import Result, Running, Watcher


def describe(result: Result) -> str:
    """Return one line on how an episode ended."""
    plan, outcome = result.plan, result.outcome
    if result.resumed:
        ended = "was there already"
    elif outcome.failure:
        ended = f"failed: {outcome.failure}"
    else:
        ended = f"{outcome.verdict if plan.fault else 'no fault'} in {result.wall_s:.0f} s"
    what = f"{plan.fault} on {plan.target}" if plan.fault else f"no fault, {plan.no_fault_kind}"
    return f"{plan.episode}  {what}: {ended}"


@contextmanager
def show_progress(total: int) -> Iterator[Watcher]:
    """Give a function that shows the state of a campaign whenever it is called."""
    if sys.stderr.isatty():
        with _bars(total) as watch:
            yield watch
        return
    told: set[str] = set()

    def lines(running: Mapping[str, Running], results: Sequence[Result], waiting: int) -> None:
        for result in results:
            if result.plan.episode not in told:
                told.add(result.plan.episode)
                print(f"[{len(told)}/{total}] {describe(result)}", file=sys.stderr, flush=True)

    yield lines


@contextmanager
def _bars(total: int) -> Iterator[Watcher]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    whole = progress.add_task("campaign", total=total, state=f"0/{total}")
    tasks: dict[str, TaskID] = {}

    def draw(running: Mapping[str, Running], results: Sequence[Result], waiting: int) -> None:
        progress.update(whole, completed=len(results), state=f"{len(results)}/{total}")
        for name in [name for name in tasks if name not in running]:
            progress.remove_task(tasks.pop(name))
        for name, episode in running.items():
            plan = episode.plan
            if name not in tasks:
                length = plan.phases.warmup_s + plan.phases.view_s + plan.phases.cooldown_s + 10
                tasks[name] = progress.add_task(
                    f"{plan.fault or 'no fault'} {plan.target or plan.no_fault_kind}", total=length, state=""
                )
            elapsed = time.monotonic() - episode.started
            progress.update(tasks[name], completed=elapsed, state=episode.phase)

    with progress:
        yield draw
