"""Progress of a campaign on standard error: bars on a terminal, a line for each ended episode otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.scheduler import CampaignProgress
from faultset.core.command_line.verbosity import is_quiet
from faultset.core.printable import brief


def describe(result: EpisodeResult) -> str:
    """Return one line on how an episode ended."""
    plan, logs = result.plan, result.outcome.logs
    if result.failure:
        ended = f"failed: {brief(result.failure)}" + (f" (logs in {logs})" if logs else "")
    elif not result.attempts:
        ended = "was there already"
    elif tried := result.outcome.mitigations:
        ended = f"{'repaired' if tried[-1].success else 'not repaired'} in {result.wall_s:.0f} s"
        if len(tried) > 1:
            ended += f" ({len(tried)} repairs in turn)"
    else:
        ended = f"{result.verdict if plan.fault else 'no fault'} in {result.wall_s:.0f} s"
    return f"{plan.episode}  {plan.title}: {ended}"


def held_back(state: CampaignProgress) -> str:
    """Return one line on why no further episode begins; empty when there is no reason."""
    return f"{state.waiting} episodes wait: {state.held_back}" if state.held_back else ""


@contextmanager
def show_progress() -> Iterator[Callable[[CampaignProgress], None]]:
    """Yield a function that shows the state of a campaign whenever it is called."""
    if is_quiet():
        yield lambda state: None
        return
    if sys.stderr.isatty():
        with _bars() as show:
            yield show
        return
    shown: set[str] = set()
    printed, reason = 0, ""

    def print_lines(state: CampaignProgress) -> None:
        nonlocal printed, reason
        total = len(state.running) + len(state.finished) + state.waiting
        for notice in state.notices[printed:]:
            print(notice, file=sys.stderr, flush=True)
        printed = len(state.notices)
        if state.held_back and not reason:
            print(held_back(state), file=sys.stderr, flush=True)
        reason = state.held_back
        for result in state.finished:
            if result.episode not in shown:
                shown.add(result.episode)
                print(f"[{len(shown)}/{total}] {describe(result)}", file=sys.stderr, flush=True)

    yield print_lines


@contextmanager
def _bars() -> Iterator[Callable[[CampaignProgress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    whole = bars.add_task("campaign", state="")
    tasks: dict[str, TaskID] = {}
    printed = 0

    def draw(state: CampaignProgress) -> None:
        nonlocal printed
        total, done = len(state.running) + len(state.finished) + state.waiting, len(state.finished)
        bars.update(whole, total=total, completed=done, state=f"{done}/{total} {held_back(state)}")
        for notice in state.notices[printed:]:
            bars.console.print(notice, markup=False)
        printed = len(state.notices)
        for name in [name for name in tasks if name not in state.running]:
            bars.remove_task(tasks.pop(name))
        for name, episode in state.running.items():
            plan = episode.plan
            if name not in tasks:
                length = plan.phases.warmup_s + plan.phases.view_s + plan.phases.cooldown_s + 10
                tasks[name] = bars.add_task(
                    f"{plan.fault_name or 'no fault'} {plan.target_name or plan.no_fault_kind}", total=length, state=""
                )
            bars.update(tasks[name], completed=time.monotonic() - episode.started, state=episode.phase)

    with bars:
        yield draw
