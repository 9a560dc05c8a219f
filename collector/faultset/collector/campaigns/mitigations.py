"""Mitigation campaigns: each planned fault met with each repair, every attempt in an episode of its own."""

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
from faultset.collector.campaigns.executors import CampaignProgress, run_episodes
from faultset.collector.campaigns.local_executor import ThisMachine
from faultset.collector.campaigns.output_folder import (
    await_removal_or_notify,
    make_output_folder,
    remove_abandoned,
)
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.episodes.working_folders import FAILED, RUNNING
from faultset.collector.faults.registry import get_fault
from faultset.collector.faults.unsupported import unsupported_faults
from faultset.collector.ipc.channel import encode
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.plans.code import campaign_code
from faultset.collector.plans.plan import OWN_INJECTOR, Plan
from faultset.collector.platforms.hosts import PlatformHost, open_host
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.core.files import replace_text, translate_resource_errors
from faultset.core.json_text import canonical_json
from faultset.core.locks import LOCK, locked
from faultset.core.reading.documents import STRICT, read_document

MITIGATIONS = "mitigations"
_OURS = {MITIGATIONS, RUNNING, FAILED, LOCK}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Mitigation:
    """One attempt to repair an application after one injection, as its file holds it.

    Attributes
    ----------
    id
        Follows from everything else that is planned and from the code, so that the same attempt is made once.
    plan
        What was injected; its `episode` is the attempt's id.
    order
        What was done about it.
    code
        Which code was run.
    result
        What came of it; None while it was not made, or when it failed for another reason.
    failure
        Why there is no result; empty when there is one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    id: str
    plan: Plan
    order: RepairOrder
    code: dict[str, str] = field(default_factory=dict)
    result: MitigationResult | None = None
    failure: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return the attempt as JSON objects, as its file holds it."""
        from pydantic import TypeAdapter

        return TypeAdapter(Mitigation).dump_python(self, mode="json")


@dataclass(frozen=True, kw_only=True)
class MitigationCampaign:
    """What came of a mitigation campaign."""

    root: Path
    mitigations: tuple[Mitigation, ...]
    interrupted: bool
    wall_s: float

    def raise_for_failures(self) -> None:
        """Raise PlatformError that names the first attempt that could not be made, if there is one."""
        failed = [one for one in self.mitigations if one.failure]
        if failed:
            raise PlatformError(
                f"{len(failed)} of {len(self.mitigations)} attempts could not be made; first, {failed[0].plan.title}: "
                f"{failed[0].failure}; run the same command again to retry them"
            )


def plan_mitigations(plans: Sequence[Plan], orders: Callable[[Plan], Sequence[RepairOrder]]) -> tuple[Mitigation, ...]:
    """Return one attempt for each plan and repair.

    Raises
    ------
    UsageError
        A plan has no fault.
    """
    made = []
    for plan in plans:
        if plan.fault is None or plan.target is None:
            raise UsageError(f"episode {plan.episode} has no fault to repair; name one with a fault")
        if plan.further:
            raise UsageError(
                f"episode {plan.episode} has several faults at once ({plan.title}), and repairs are judged of one; "
                "name an episode with one fault"
            )
        base = campaign_code([get_fault(plan.fault)], (plan.app_file or plan.app,), plan.platform, plan.sources)
        for order in orders(plan):
            # where files of the commands lie is no part of what is done
            text = encode(replace(order, folder=None)).decode()
            known = [replace(plan, episode="").to_json(), text, canonical_json(base), version("faultset")]
            name = hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]
            made.append(Mitigation(id=name, plan=replace(plan, episode=name), order=order, code=base))
    return tuple(made)


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
    """Make the attempts that a folder does not have yet: deploy, inject, repair, judge, undo, remove.

    Parameters
    ----------
    planned
        What `plan_mitigations` returned; all on one platform.
    out
        Folder of the results, one file each in `mitigations/`; made when it does not exist.
    in_turn
        Whether the repairs of a plan are tried one after the other on the same live fault, in the order in which they
        are planned, until one has repaired the application; those after that one meet the fault anew. Otherwise each
        has an episode of its own.
    jobs, settings, progress, notify, should_stop
        As in `collect`.

    Raises
    ------
    UsageError
        The attempts are planned for several platforms, or there are none.
    DataError
        `out` holds something else, or a result in it is damaged.
    PlatformError
        Episodes cannot run here, or a fault cannot be injected.
    """
    root = Path(out)
    host = ThisMachine(_host_of(planned, settings or {}), root, [one.plan for one in planned], jobs)
    _check_folder(root)
    for sentence in host.check():
        notify(sentence)
    refused = unsupported_faults(host, {one.plan.fault: get_fault(one.plan.fault or "") for one in planned}.values())
    for fault, reason in refused.items():
        raise PlatformError(f"fault {fault} cannot be injected here: {reason}")
    began = time.monotonic()
    with translate_resource_errors(root):
        make_output_folder(root / MITIGATIONS)
        with locked(root, "mitigate", notify=notify) as lock:
            for sentence in remove_abandoned(root, lambda platform: host.here).left:
                notify(sentence)
            made = {one.id: attempt for one in planned if (attempt := _read(root, one)) is not None}
            due = [one for one in planned if one.id not in made]
            jobs = host.episode_capacity()
            notify(f"{len(due)} attempts to make, {len(made)} there already, at most {jobs} at a time, into {root}")
            groups = _in_groups(due, in_turn)

            def take(result: EpisodeResult) -> list[WaitingEpisode]:
                group = groups[result.episode]
                tried = _tried(group, result.outcome)
                for one in tried:
                    made[one.id] = one
                    if not one.failure:
                        _write(root, one)
                left = _in_groups(group[len(tried) :] if tried else [], in_turn)
                groups.update(left)
                return [WaitingEpisode(plan=one[0].plan, repairs=_repairs(one)) for one in left.values()]

            with host.open_executor(campaign="", jobs=jobs, lock=lock) as executor:
                run_episodes(
                    [group[0].plan for group in groups.values()],
                    executor,
                    progress=progress,
                    should_stop=should_stop,
                    take=take,
                    repairs={episode: _repairs(group) for episode, group in groups.items()},
                )
            await_removal_or_notify(host.here, [one.id for one in planned], notify)
    return MitigationCampaign(
        root=root,
        mitigations=tuple(made[one.id] for one in planned if one.id in made),
        interrupted=should_stop(),
        wall_s=time.monotonic() - began,
    )


def _host_of(planned: Sequence[Mitigation], settings: Mapping[str, Any]) -> PlatformHost:
    """Return the host of the one platform and injector that the attempts are planned for."""
    platforms = {one.plan.platform for one in planned}
    if len(platforms) != 1:
        raise UsageError(f"mitigations run on one platform; found {', '.join(sorted(platforms)) or 'nothing to do'}")
    injectors = {one.plan.injector: one.plan.settings for one in planned}
    if len(injectors) != 1:
        names = ", ".join(sorted(name or OWN_INJECTOR for name in injectors))
        raise UsageError(f"mitigations run with one injector; found {names}; plan them apart")
    return open_host(platforms.pop(), {**settings, **next(iter(injectors.values()))})


def _repairs(group: Sequence[Mitigation]) -> tuple[RepairOrder, ...]:
    return tuple(one.order for one in group)


def read_mitigations(root: str | Path) -> tuple[Mitigation, ...]:
    """Return all attempts whose results a folder holds; raise DataError when one is damaged."""
    return tuple(_document(path, Path(root)) for path in sorted((Path(root) / MITIGATIONS).glob("*.json")))


def _in_groups(due: Sequence[Mitigation], in_turn: bool) -> dict[str, list[Mitigation]]:
    """Return the attempts that share an episode, by its id, which is the first one's."""
    groups: dict[str, list[Mitigation]] = {}
    for one in due:
        alone = one.order.mitigator is not None or not in_turn
        groups.setdefault(one.id if alone else replace(one.plan, episode="").to_json(), []).append(one)
    return {group[0].id: group for group in groups.values()}


def _tried(group: Sequence[Mitigation], outcome: EpisodeOutcome) -> list[Mitigation]:
    """Return what came of the attempts of an episode; those after the first success were not made."""
    if outcome.failure:
        return [replace(one, failure=outcome.failure) for one in group]
    return [replace(one, result=result) for one, result in zip(group, outcome.mitigations, strict=False)]


def _check_folder(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise DataError(f"--out must be a folder, but {root} is a file; name another")
    content = {path.name for path in root.iterdir()} if root.exists() else set()
    if content - _OURS:
        other = min(content - _OURS)
        raise DataError(f"{root} holds {other!r} and is no folder of mitigations; name an empty or new one with --out")


def _read(root: Path, planned: Mitigation) -> Mitigation | None:
    path = root / MITIGATIONS / f"{planned.id}.json"
    return _document(path, root) if path.exists() else None


def _document(path: Path, root: Path) -> Mitigation:
    return read_document(path, Mitigation, below=root)


def _write(root: Path, made: Mitigation) -> None:
    text = json.dumps(made.to_record(), indent=1, ensure_ascii=False)
    replace_text(root / MITIGATIONS / f"{made.id}.json", text)
