"""Cost of scheduling a campaign of many empty episodes on a dask scheduler.

    python benchmarks/collection/worker_campaign.py                     # 10,000 episodes on 20 workers of 5 slots each
    python benchmarks/collection/worker_campaign.py --episodes 1000 --workers 4 --slots 2

Scheduler, workers and client run in this process, with the code of `collect --scheduler` up to the start of an
episode's process. Every hundredth episode is void at first and is repeated. Prints one JSON object: seconds,
milliseconds per episode, processor seconds, and this process's memory (MiB) at the start, at each tenth, and at the
end.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
from dask import config
from distributed import Client, LocalCluster

from faultset.collector.campaigns.dask_executor import DaskExecutor, EpisodeRun, WorkerAssignment
from faultset.collector.campaigns.destinations import FolderDestination
from faultset.collector.campaigns.executors import CampaignProgress, run_episodes
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.requests import make_request

VOID_EVERY = 100


def simulate_episode(order: WorkerAssignment) -> EpisodeRun:
    """Simulate an episode: return at once; the first run of every hundredth one is void."""
    plan = order.waiting.plan
    is_void = order.waiting.attempt == 1 and plan.seed % VOID_EVERY == 0
    failure = "the application was not healthy" if is_void else ""
    return EpisodeRun(outcome=EpisodeOutcome(episode=plan.episode, failure=failure, verdict="none"), wall_s=0.0)


def main() -> None:
    """Run the campaign and print its cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--slots", type=int, default=5, help="concurrent episodes of a worker")
    options = parser.parse_args()
    (first, *_) = plan_campaign(make_request(faults=["noop"], apps=["hotel"], normal=1, profile="quick"))
    plans = [replace(first, episode=f"{number:012x}", seed=number) for number in range(options.episodes)]
    process, memory_mib, most = psutil.Process(), [], 0

    def progress(state: CampaignProgress) -> None:
        nonlocal most
        most = max(most, len(state.running))
        if len(state.finished) * 10 >= len(memory_mib) * options.episodes:
            memory_mib.append(round(process.memory_info().rss / 2**20))

    with (
        config.set({"distributed.worker.profile.enabled": False, "distributed.admin.low-level-log-length": 0}),
        LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            resources={"episode": options.slots},
            processes=False,
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        tempfile.TemporaryDirectory() as root,
    ):
        began = time.monotonic()
        executor = DaskExecutor(
            client, FolderDestination(Path(root)), campaign="none", settings={}, task=simulate_episode
        )
        results = run_episodes(plans, executor, progress=progress, should_stop=lambda: False)
        executor.close()
        seconds = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "episodes": len(results),
        "repeated": sum(result.attempts > 1 for result in results),
        "failed": sum(bool(result.failure) for result in results),
        "most_at_a_time": most,
        "seconds": round(seconds, 1),
        "ms_an_episode": round(1000 * seconds / len(results), 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "memory_mib": memory_mib,
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
