"""Scheduler of a campaign: runs episodes side by side, each in a process tree of its own."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from faultset.collector.campaigns.episode_processes import EpisodeResult, RunningEpisode
from faultset.collector.campaigns.episode_queue import EpisodeQueue, HostLimit, HostState
from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan

STAGGER_S = 2.0

_log = logging.getLogger(__name__)


class EpisodeInProgress(Protocol):
    """An episode that runs, here or elsewhere."""

    @property
    def plan(self) -> Plan:
        """What is run."""
        ...

    @property
    def phase(self) -> str:
        """The phase that it was last known to be in."""
        ...

    @property
    def started(self) -> float:
        """When it began, in monotonic seconds."""
        ...


@dataclass(frozen=True, kw_only=True)
class CampaignProgress:
    """State of a campaign under way.

    Attributes
    ----------
    running
        Episodes under way, by id.
    finished
        Results in the order in which episodes ended.
    waiting
        How many episodes are still to be begun.
    held_back
        Why no further episode begins although some wait and more might run at a time; empty when there is no reason.
    notices
        Sentences on episodes that are repeated, oldest first; whole reasons are logged.
    """

    running: Mapping[str, EpisodeInProgress]
    finished: Sequence[EpisodeResult]
    waiting: int
    held_back: str = ""
    notices: Sequence[str] = ()


def run_episodes(
    plans: Sequence[Plan],
    root: Path,
    *,
    jobs: int,
    settings: Mapping[str, Any],
    progress: Callable[[CampaignProgress], None],
    should_stop: Callable[[], bool],
    remove_lost: Callable[[str], None] = lambda episode: None,
    repairs: Mapping[str, Sequence[RepairOrder]] = MappingProxyType({}),
    lock: int | None = None,
) -> list[EpisodeResult]:
    """Run plans, at most `jobs` at a time, and return their results in the order in which they ended.

    Fewer run at a time while the machine is short of CPU. An episode that fails is run once more, unless its failure is
    certain to repeat; one that the host has spoiled is run again several times, after the others. When `should_stop`
    returns True, no more are begun, and those under way undo their changes and end.

    Parameters
    ----------
    root
        The dataset's folder.
    settings
        Settings of the platform's host, which each process opens anew.
    progress
        Called several times a second.
    remove_lost
        Called with the id of an episode whose process ended without a word, to undo and remove what it has left.
    repairs
        What is done about the fault of an episode, by its id, one after the other until one has repaired the
        application; episodes with a repair are not written.
    lock
        Descriptor of the dataset's lock, which episodes hold until they have undone their changes, should this process
        be killed.
    """
    results: list[EpisodeResult] = []
    waiting, host, pressure = EpisodeQueue(plans), HostLimit(jobs), CpuPressure()
    held_back = ""
    running: dict[str, RunningEpisode] = {}
    selector = selectors.DefaultSelector()
    last_start, is_stopping = 0.0, False

    def report() -> None:
        progress(
            CampaignProgress(
                running=running,
                finished=results,
                waiting=len(waiting),
                held_back=held_back,
                notices=waiting.notices,
            )
        )

    report()
    try:
        while running or (waiting and not should_stop()):
            if should_stop() and not is_stopping:
                is_stopping = True
                for episode in running.values():
                    episode.process.terminate()
            state = HostState.of([one.current_phase for one in running.values()], pressure.use, time.monotonic())
            reason = (host.reason_to_wait(state) or waiting.reason_to_wait(state.use)) if waiting else ""
            # the first half second, in which nothing is known yet, is nothing to report
            held_back = reason if len(running) < jobs and state.use else ""
            may_start = not should_stop() and time.monotonic() - last_start >= (STAGGER_S if running else 0.0)
            if waiting and not reason and may_start:
                chosen = waiting.next()
                ordered = repairs.get(chosen.plan.episode, ())
                begun = RunningEpisode.start(chosen, root, jobs, settings, lock, ordered)
                plan = begun.plan
                running[plan.episode] = begun
                _log.info("episode %s starts (%s, attempt %d)", plan.episode, plan.title, begun.attempt)
                selector.register(begun.output, selectors.EVENT_READ, plan.episode)
                last_start = time.monotonic()
            for episode in running.values():
                episode.end_if_stopped()
                episode.end_orphans()
            for key, _ in selector.select(timeout=0.25):
                episode = running[key.data]
                line = episode.output.readline()
                if line:
                    episode.receive(line)
                    continue
                selector.unregister(key.fileobj)
                del running[key.data]
                result = episode.finish(remove_lost)
                if result.failure:
                    _log.info("episode %s, attempt %d is void: %s", result.episode, result.attempts, result.failure)
                host.take(result.outcome, episode.started)
                if should_stop() or not waiting.repeat(episode.waiting, result.outcome):
                    results.append(result)
            report()
    finally:
        for episode in running.values():
            episode.process.terminate()
        for episode in running.values():
            episode.process.wait()
        selector.close()
    return results
