"""Mitigation campaigns: try each repair on each planned fault."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.executors import CampaignProgress, ThisMachine, run_episodes
from faultset.collector.campaigns.output_folder import await_removal_or_notify, make_output_folder, remove_abandoned
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.episodes.working_folders import FAILED, RUNNING
from faultset.collector.faults.registry import get_fault, unsupported_faults
from faultset.collector.ipc.channel import encode
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.plans.campaign_plans import campaign_code
from faultset.collector.plans.plan import OWN_INJECTOR, Plan
from faultset.collector.platforms.hosts import PlatformHost, open_host
from faultset.core.documents import STRICT, read_document
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.core.files import canonical_json, replace_text, translate_resource_errors
from faultset.core.locks import LOCK, lock_folder
from faultset.core.printable import count_text

MITIGATIONS = "mitigations"
_ALLOWED_NAMES = {MITIGATIONS, RUNNING, FAILED, LOCK}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Mitigation:
    """One attempt to repair an application after one injection, as stored in its file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    id: str
    """Hash of the plan, order and code, so that the same attempt runs only once."""
    plan: Plan
    """Plan of the injection; its `episode` is the attempt's id."""
    order: RepairOrder
    """The repair."""
    code: dict[str, str] = field(default_factory=dict)
    """Code that was run; see `campaign_code`."""
    result: MitigationResult | None = None
    """Result of the repair; None before the attempt, or if the attempt failed."""
    failure: str = ""
    """Why the attempt failed; empty otherwise."""

    def to_record(self) -> dict[str, Any]:
        """Return the attempt as the JSON object in its file."""
        from pydantic import TypeAdapter

        return TypeAdapter(Mitigation).dump_python(self, mode="json")


@dataclass(frozen=True, kw_only=True)
class MitigationCampaign:
    root: Path
    mitigations: tuple[Mitigation, ...]
    interrupted: bool
    wall_s: float

    def raise_for_failures(self) -> None:
        """Raise PlatformError that names the first failed attempt, if there is one."""
        failed = [attempt for attempt in self.mitigations if attempt.failure]
        if failed:
            raise PlatformError(
                f"{len(failed)} of {count_text(len(self.mitigations), 'attempt')} failed; first, "
                f"{failed[0].plan.title}: {failed[0].failure}. Run the same command again to retry them"
            )


def plan_mitigations(plans: Sequence[Plan], orders: Callable[[Plan], Sequence[RepairOrder]]) -> tuple[Mitigation, ...]:
    """Return one attempt for each plan and repair; raise UsageError unless each plan has exactly one fault."""
    attempts = []
    for plan in plans:
        if plan.fault is None or plan.target is None:
            raise UsageError(f"episode {plan.episode} has no fault to repair. Choose an episode with a fault")
        if plan.further:
            raise UsageError(
                f"an episode to repair must have one fault, but {plan.episode} has several ({plan.title}). "
                "Choose an episode with one fault"
            )
        base = campaign_code([get_fault(plan.fault)], (plan.app_file or plan.app,), plan.platform, plan.sources)
        for order in orders(plan):
            # the folder of the commands' files does not change the repair
            text = encode(replace(order, folder=None)).decode()
            identity = [replace(plan, episode="").to_json(), text, canonical_json(base), version("faultset")]
            name = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:12]
            attempts.append(Mitigation(id=name, plan=replace(plan, episode=name), order=order, code=base))
    return tuple(attempts)


def mitigate(
    planned: Sequence[Mitigation],
    *,
    out: str | Path,
    jobs: int | None = None,
    in_turn: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[CampaignProgress], None] = lambda state: None,
    notify: Callable[[str], None] = _log.info,
    should_stop: Callable[[], bool] = lambda: False,
) -> MitigationCampaign:
    """Run the attempts that have no result in a folder yet: deploy, inject, repair, judge, undo, remove.

    Parameters
    ----------
    planned
        Attempts from `plan_mitigations`, all for one platform.
    out
        Folder of the results, one file each in `mitigations/`; need not exist.
    in_turn
        Whether to try the repairs of a plan in order on the same live fault until one succeeds; the repairs after it
        are tried on a new injection. By default, each repair has a separate episode.
    jobs, settings, progress, notify, should_stop
        As in `collect`.

    Raises
    ------
    UsageError
        The attempts are for several platforms or injectors, or there are none.
    DataError
        `out` contains other files, or a result in it is damaged.
    PlatformError
        Episodes cannot run here, or a fault cannot be injected.
    """
    root = Path(out)
    host = ThisMachine(_open_host(planned, settings or {}), root, [attempt.plan for attempt in planned], jobs)
    _check_folder(root)
    for sentence in host.check():
        notify(sentence)
    faults = {attempt.plan.fault: get_fault(attempt.plan.fault or "") for attempt in planned}
    for fault, reason in unsupported_faults(host, faults.values()).items():
        raise PlatformError(f"fault {fault} cannot be injected here: {reason}")
    start_s = time.monotonic()
    with translate_resource_errors(root):
        make_output_folder(root / MITIGATIONS)
        with lock_folder(root, "mitigate", notify=notify) as lock:
            for sentence in remove_abandoned(root, lambda platform: host.local_host).remaining:
                notify(sentence)
            attempts = _Attempts(root, planned, in_turn)
            finished, jobs = len(attempts.finished), host.episode_capacity()
            notify(
                f"{count_text(len(planned) - finished, 'attempt')} to run, {finished} already done, at most {jobs} at "
                f"a time, into {root}"
            )
            with host.open_executor(campaign="", jobs=jobs, lock=lock) as executor:
                run_episodes(
                    [group[0].plan for group in attempts.groups.values()],
                    executor,
                    progress=progress,
                    should_stop=should_stop,
                    handle_result=attempts.record,
                    repairs={episode: _list_orders(group) for episode, group in attempts.groups.items()},
                )
            await_removal_or_notify(host.local_host, [attempt.id for attempt in planned], notify)
    return MitigationCampaign(
        root=root,
        mitigations=tuple(attempts.finished[attempt.id] for attempt in planned if attempt.id in attempts.finished),
        interrupted=should_stop(),
        wall_s=time.monotonic() - start_s,
    )


class _Attempts:
    """The attempts of a folder: finished ones by id, and the others grouped by the episode that they share."""

    def __init__(self, root: Path, planned: Sequence[Mitigation], in_turn: bool):
        self._root, self._in_turn = root, in_turn
        ids = {path.stem: path for path in (root / MITIGATIONS).glob("*.json")}
        self.finished = {attempt.id: _read_attempt(ids[attempt.id], root) for attempt in planned if attempt.id in ids}
        self.groups = _group_by_episode([attempt for attempt in planned if attempt.id not in self.finished], in_turn)

    def record(self, result: EpisodeResult) -> list[WaitingEpisode]:
        """Write the attempts that an episode made, and return episodes for the rest of its group."""
        group = self.groups[result.episode]
        attempts = _apply_outcome(group, result.outcome)
        for attempt in attempts:
            self.finished[attempt.id] = attempt
            if not attempt.failure:
                text = json.dumps(attempt.to_record(), indent=1, ensure_ascii=False)
                replace_text(self._root / MITIGATIONS / f"{attempt.id}.json", text)
        new_groups = _group_by_episode(group[len(attempts) :] if attempts else [], self._in_turn)
        self.groups.update(new_groups)
        return [WaitingEpisode(plan=group[0].plan, repairs=_list_orders(group)) for group in new_groups.values()]


def _open_host(planned: Sequence[Mitigation], settings: Mapping[str, Any]) -> PlatformHost:
    """Return the host of the platform and injector that all attempts share."""
    platforms = {attempt.plan.platform for attempt in planned}
    if len(platforms) != 1:
        names = ", ".join(sorted(platforms)) or "none"
        raise UsageError(f"mitigations must be for one platform, but are for {names}. Run them separately")
    injectors = {attempt.plan.injector: attempt.plan.settings for attempt in planned}
    if len(injectors) != 1:
        names = ", ".join(sorted(name or OWN_INJECTOR for name in injectors))
        raise UsageError(f"mitigations must be for one injector, but are for {names}. Run them separately")
    return open_host(platforms.pop(), {**settings, **next(iter(injectors.values()))})


def _list_orders(group: Sequence[Mitigation]) -> tuple[RepairOrder, ...]:
    return tuple(attempt.order for attempt in group)


def read_mitigations(root: str | Path) -> tuple[Mitigation, ...]:
    """Return all attempts with results in a folder; raise DataError if one is damaged."""
    return tuple(_read_attempt(path, Path(root)) for path in sorted((Path(root) / MITIGATIONS).glob("*.json")))


def _group_by_episode(attempts: Sequence[Mitigation], in_turn: bool) -> dict[str, list[Mitigation]]:
    """Group attempts that share an episode, by its id: the id of the first attempt."""
    groups: dict[str, list[Mitigation]] = {}
    for attempt in attempts:
        is_alone = attempt.order.mitigator is not None or not in_turn
        key = attempt.id if is_alone else replace(attempt.plan, episode="").to_json()
        groups.setdefault(key, []).append(attempt)
    return {group[0].id: group for group in groups.values()}


def _apply_outcome(group: Sequence[Mitigation], outcome: EpisodeOutcome) -> list[Mitigation]:
    """Return the attempts that an episode made, with their results; attempts after a success are left out."""
    if outcome.failure:
        return [replace(attempt, failure=outcome.failure) for attempt in group]
    return [replace(attempt, result=result) for attempt, result in zip(group, outcome.mitigations, strict=False)]


def _check_folder(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise DataError(f"--out must be a folder, but {root} is a file. Choose another")
    content = {path.name for path in root.iterdir()} if root.exists() else set()
    if others := content - _ALLOWED_NAMES:
        raise DataError(
            f"--out must be empty or contain only mitigations, but {root} contains {min(others)!r}. Choose another"
        )


def _read_attempt(path: Path, root: Path) -> Mitigation:
    return read_document(path, Mitigation, below=root)
