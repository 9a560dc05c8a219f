"""Progress of a campaign on standard error: bars on a terminal, a line for each ended episode otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.executors import CampaignProgress
from faultset.collector.plans.cost import duration_text, episode_time_s
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


def remaining_s(state: CampaignProgress, now_s: float) -> float:
    """Return how long a campaign goes on, by the time that its episodes have taken so far.

    Parameters
    ----------
    now_s
        Monotonic seconds.
    """
    taken_s = [one.wall_s for one in state.finished if one.attempts and not one.failure]
    if not taken_s:
        taken_s = [episode_time_s(one.plan) for one in state.running.values()]
    usual_s = sum(taken_s) / max(1, len(taken_s))
    left_s = [max(0.0, usual_s - (now_s - one.started)) for one in state.running.values()]
    return max([*left_s, (sum(left_s) + state.waiting * usual_s) / max(1, len(left_s))])


def time_left(state: CampaignProgress, now_s: float) -> str:
    """Return how long a campaign goes on in words; empty when it does not."""
    return f"about {duration_text(remaining_s(state, now_s))} left" if state.running or state.waiting else ""


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
                left = time_left(state, time.monotonic())
                line = f"[{len(shown)}/{total}] {describe(result)}" + (f"; {left}" if left else "")
                print(line, file=sys.stderr, flush=True)

    yield print_lines


def _whole_state(state: CampaignProgress, total: int) -> str:
    notes = (time_left(state, time.monotonic()), held_back(state))
    return ", ".join([f"{len(state.finished)}/{total}", *(note for note in notes if note)])


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
        bars.update(whole, total=total, completed=done, state=_whole_state(state, total))
        for notice in state.notices[printed:]:
            bars.console.print(notice, markup=False)
        printed = len(state.notices)
        for name in [name for name in tasks if name not in state.running]:
            bars.remove_task(tasks.pop(name))
        for name, episode in state.running.items():
            plan = episode.plan
            if name not in tasks:
                tasks[name] = bars.add_task(
                    f"{plan.fault_name or 'no fault'} {plan.target_name or plan.no_fault_kind}",
                    total=episode_time_s(plan),
                    state="",
                )
            bars.update(tasks[name], completed=time.monotonic() - episode.started, state=episode.phase)

    with bars:
        yield draw
