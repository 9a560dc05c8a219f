"""One run of `collect`: prepare the folder, run what is unfinished, make a version, say what is next."""

from __future__ import annotations

import os
import platform as host
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from faultset.collector.apps import load_app
from faultset.collector.campaigns.campaign import (
    CAMPAIGNS,
    Result,
    check_root,
    record_failures,
    remove_abandoned,
    run_campaign,
    write_campaign,
)
from faultset.collector.campaigns.progress import show_progress
from faultset.collector.faults.registry import get_fault
from faultset.collector.faults.support import unsupported_faults
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.request import Request, campaign_id, plan_campaign
from faultset.collector.platforms.hosts import open_host
from faultset.core.errors import DataError, FaultsetError, PlatformError
from faultset.datasets.format.truth import read_label
from faultset.datasets.format.versions import create_version, list_versions


class Session:
    """See the module.

    Raises
    ------
    DataError
        `root` holds something that is no dataset, or the disk is full.
    PlatformError
        Episodes failed twice; what succeeded is kept and versioned.
    """

    def __init__(
        self,
        request: Request,
        plans: Sequence[Plan],
        root: Path,
        *,
        jobs: int | None,
        fresh: bool,
        settings: Mapping[str, Any] | None = None,
    ):
        self.request, self.plans, self.root = request, list(plans), root
        self._settings = dict(settings or {})
        self._host = open_host(request.platform, self._settings)
        self._asked_jobs = jobs
        self.jobs = jobs or 1
        self.refused: dict[str, str] = {}
        self.campaign = campaign_id(request)
        if fresh:
            self._plan_afresh()
        self._stopping: list[int] = []

    def _plan_afresh(self) -> None:
        """Give the episodes ids that no earlier run of the same request has used."""
        number = 1
        while (self.root / CAMPAIGNS / f"{self.campaign}.json").exists():
            number += 1
            self.campaign = f"{campaign_id(self.request)}-{number}"
        if number > 1:
            self.plans = plan_campaign(self.request, run=number)

    def run(self) -> None:
        """Run the campaign and print its table."""
        check_root(self.root)
        for sentence in self._host.check():
            print(sentence)
        self.root.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.root, lambda platform: self._host if platform == self.request.platform else None)
        self.jobs = self._jobs()
        self._refuse()
        path = write_campaign(self.root, self.campaign, self.plans, asdict(self.request), self.refused)
        self._announce()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._stop)
        began = time.monotonic()
        try:
            with show_progress(len(self.plans)) as watch:
                results = run_campaign(
                    self.plans,
                    self.root,
                    jobs=self.jobs,
                    settings=self._host.settings,
                    watch=watch,
                    stopping=lambda: bool(self._stopping),
                )
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._conclude(path, results, time.monotonic() - began)

    def _jobs(self) -> int:
        """Return how many episodes run at a time: one where they share an application that is not ours."""
        if any(load_app(plan.app_file or plan.app).deployed for plan in self.plans):
            if self._asked_jobs and self._asked_jobs > 1:
                print("one episode at a time: they share an application that runs already", file=sys.stderr)
            return 1
        return self._asked_jobs or self._host.episode_capacity()

    def _refuse(self) -> None:
        """Leave out the faults that the platform cannot make; none may be left out that was named."""
        wanted = {plan.fault: get_fault(plan.fault) for plan in self.plans if plan.fault}
        self.refused = unsupported_faults(self._host, wanted.values())
        for fault, reason in self.refused.items():
            if fault in self.request.faults:
                raise PlatformError(f"fault {fault} cannot be made here: {reason}")
            print(f"left out: {fault}, which cannot be made here: {reason}", file=sys.stderr)
        self.plans = [plan for plan in self.plans if plan.fault not in self.refused]

    def _stop(self, number: int, frame: Any) -> None:
        if not self._stopping:
            print("stopping: undoing what was injected and removing what was deployed", file=sys.stderr)
        self._stopping.append(number)

    def _announce(self) -> None:
        faults = sum(plan.fault is not None for plan in self.plans)
        print(
            f"{len(self.plans)} episodes ({faults} with a fault, {len(self.plans) - faults} without), "
            f"{self.jobs} at a time, view {self.plans[0].phases.view_s:g} s, into {self.root}",
            file=sys.stderr,
        )

    def _conclude(self, path: Path, results: Sequence[Result], wall_s: float) -> None:
        from faultset.collector.campaigns.summary import print_summary

        failures = {r.plan.episode: r.outcome.failure for r in results if r.outcome.failure}
        if self._stopping:
            finished = sum(not r.outcome.failure for r in results)
            print(
                f"stopped with {finished} of {len(self.plans)} episodes; run the same command again to go on",
                file=sys.stderr,
            )
            raise KeyboardInterrupt
        record_failures(path, failures)
        fresh = [r for r in results if not r.resumed and not r.outcome.failure]
        if fresh:
            number = create_version(self.root, provenance=self._provenance(wall_s, failures))
        else:
            number = (list_versions(self.root) or [""])[-1]
        labels = {
            r.plan.episode: read_label(self.root / "episodes" / r.plan.episode)
            for r in results
            if not r.outcome.failure
        }
        print_summary(self.root, number, self.plans, results, labels, wall_s)
        if failures:
            raise _error_of(results)(
                f"{len(failures)} of {len(self.plans)} episodes failed twice; first: {next(iter(failures.values()))}; "
                f"run the same command again to retry them"
            )

    def _provenance(self, wall_s: float, failures: dict[str, str]) -> dict[str, Any]:
        return {
            "faultset": version("faultset"),
            "campaign": self.campaign,
            "request": asdict(self.request),
            "jobs": self.jobs,
            "wall_s": round(wall_s, 1),
            "failed_episodes": len(failures),
            "host": {
                "cores": len(os.sched_getaffinity(0)),
                "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
                "system": host.platform(),
                "python": host.python_version(),
            },
        }


def _error_of(results: Sequence[Result]) -> type[FaultsetError]:
    """Return the kind of error that all failed episodes share; the platform's when they differ."""
    codes = {r.outcome.exit_code for r in results if r.outcome.failure}
    return DataError if codes == {DataError.exit_code} else PlatformError
