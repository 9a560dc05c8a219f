"""The machines of a dask scheduler's workers as the place where a campaign's episodes run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from platform import node
from typing import TYPE_CHECKING, Any

from faultset.collector.campaigns.destinations import Destination
from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.results import this_machine
from faultset.collector.campaigns.scheduler import CampaignProgress
from faultset.collector.campaigns.worker_episodes import RESOURCE
from faultset.collector.campaigns.worker_scheduling import run_on_workers, worker_slots
from faultset.collector.plans.campaign_plans import requested_code
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.platforms.hosts import open_host
from faultset.core.dask_clients import connected
from faultset.core.errors import FaultsetError, PlatformError, UsageError

if TYPE_CHECKING:
    from distributed import Client

EMBEDDED = "local"
"""The platform whose episodes need nothing but the machine that they run on."""


@dataclass(frozen=True, kw_only=True)
class WorkerDescription:
    """What a worker says of its machine."""

    problem: str
    """Why no episode can run there; empty when one can."""
    code: Mapping[str, str]
    """Which code the campaign would run there."""
    name: str
    """Name of the machine."""
    machine: Mapping[str, Any]
    """What the machine is."""


class WorkerHosts:
    """Workers that run episodes of a campaign; asked for what a campaign asks of a host.

    Attributes
    ----------
    machines
        What the machines of the workers are, once they were checked.
    """

    def __init__(
        self,
        client: Client,
        address: str,
        destination: Destination,
        request: CampaignRequest,
        settings: Mapping[str, Any],
        jobs: int | None,
    ) -> None:
        self._client, self._address = client, address
        self._destination = destination.for_workers()
        self._request, self._settings, self._jobs = request, settings, jobs
        self.machines: list[dict[str, Any]] = []

    def check(self) -> list[str]:
        """Look at all workers; return sentences for the user, and raise PlatformError when episodes cannot run."""
        slots = worker_slots(self._client)
        if not slots:
            raise PlatformError(
                f"no dask worker of {self._address} says how many episodes it runs at a time; start workers with "
                f'"dask worker {self._address} --resources {RESOURCE}=2"'
            )
        facts: Any = self._client.run(
            _facts_here, self._destination, self._request, dict(self._settings), workers=list(slots)
        )
        code = requested_code(self._request)
        for worker, found in sorted(facts.items()):
            if found.problem:
                raise PlatformError(f"episodes cannot run on the dask worker {worker}: {found.problem}")
            if found.code != code:
                other = min(name for name in {*found.code, *code} if found.code.get(name) != code.get(name))
                raise PlatformError(
                    f"the dask worker {worker} has other code of {other} than this machine; install the same there"
                )
        self.machines = list({found.name: dict(found.machine) for found in facts.values()}.values())
        machines = f"{len(self.machines)} {'machine' if len(self.machines) == 1 else 'machines'}"
        return [f"{len(slots)} dask workers on {machines}, together {sum(slots.values())} episodes at a time"]

    def episode_capacity(self) -> int:
        """Return how many episodes run at a time on all workers that are there now."""
        slots = max(1, sum(worker_slots(self._client).values()))
        return min(slots, self._jobs or slots)

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return those of the capabilities that faults need which some worker lacks, with the reason."""
        found: Any = self._client.run(_lacking_here, EMBEDDED, dict(self._settings), sorted(needs))
        return {need: reason for worker in sorted(found) for need, reason in found[worker].items()}

    def run_episodes(
        self,
        plans: Sequence[Plan],
        *,
        campaign: str,
        progress: Callable[[CampaignProgress], None],
        should_stop: Callable[[], bool],
    ) -> list[EpisodeResult]:
        """Run plans of a campaign; see `run_on_workers`."""
        return run_on_workers(
            plans,
            self._destination,
            client=self._client,
            campaign=campaign,
            jobs=self._jobs,
            settings=self._settings,
            progress=progress,
            should_stop=should_stop,
        )


def check_for_workers(platform: str, destination: Destination) -> None:
    """Raise UsageError when a platform does not run on workers, or when they do not see the destination."""
    if platform != EMBEDDED:
        raise UsageError(
            f"--scheduler runs episodes of the platform {EMBEDDED}, but {platform} was asked for; leave one of them out"
        )
    if destination.location.startswith("memory://"):
        raise UsageError(
            f"workers do not see {destination.location}, which is memory of this process; give another place with --out"
        )


@contextmanager
def open_workers(
    address: str,
    destination: Destination,
    request: CampaignRequest,
    settings: Mapping[str, Any],
    *,
    jobs: int | None = None,
) -> Iterator[WorkerHosts]:
    """Yield the workers of a dask scheduler, which must reach the dataset.

    Parameters
    ----------
    jobs
        How many episodes run at a time at most, on all workers together.

    Raises
    ------
    UsageError
        That is no address.
    PlatformError
        Nobody answers, or no worker can run episodes.
    """
    folder = str(destination.for_workers().folder) if destination.is_shared else None
    with connected(address, folder, _facts_here_are_asked) as client:
        yield WorkerHosts(client, address, destination, request, settings, jobs)


def _facts_here_are_asked() -> str:
    return __name__


def _facts_here(destination: Destination, request: CampaignRequest, settings: Mapping[str, Any]) -> WorkerDescription:
    try:
        destination.check()
        open_host(request.platform, settings).check()
        return WorkerDescription(problem="", code=requested_code(request), name=node(), machine=this_machine())
    except FaultsetError as error:
        return WorkerDescription(problem=str(error), code={}, name=node(), machine=this_machine())


def _lacking_here(platform: str, settings: Mapping[str, Any], needs: Collection[str]) -> dict[str, str]:
    return open_host(platform, settings).unsupported_needs(needs)
