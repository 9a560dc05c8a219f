"""Time of an episode outside its phases: start, deploy, snapshot, write, teardown.

    python benchmarks/collection/episode_overhead.py [--profile quick|standard] [--platform kubernetes] [--normal 0]

Runs an episode without a fault (`--normal`), then one with target-port, and prints one JSON object. The recovery after
the undo counts as a phase, because its length depends on the application.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from faultset.collector.campaigns.episode_processes import EpisodeHost
from faultset.collector.campaigns.executors import LocalExecutor, run_episodes
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.plan import profile_phases
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.hosts import platform_names
from faultset.datasets.format.labels import read_label


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=("quick", "standard"), default="quick")
    parser.add_argument("--platform", choices=platform_names(), default="local")
    parser.add_argument("--normal", type=int, default=1, help="episodes without a fault")
    arguments = parser.parse_args()
    profile, platform = arguments.profile, arguments.platform
    phases = profile_phases(profile, platform)
    request = make_request(
        faults=["target-port"],
        apps=["hotel"],
        targets=["geo"],
        platform=platform,
        seed=1,
        normal=arguments.normal,
        profile=profile,
    )
    rows = []
    for plan in plan_campaign(request):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            executor = LocalExecutor(EpisodeHost(1), Path(folder), {})
            (result,) = run_episodes([plan], executor, progress=lambda state: None, should_stop=lambda: False)
            executor.close()
            wall_s = time.perf_counter() - began
            failed = bool(result.outcome.failure)
            host = {} if failed else read_label(Path(folder) / "episodes" / plan.episode).host
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        durations = result.outcome.durations_s
        planned_s = phases.warmup_s + phases.view_s + phases.cooldown_s
        rows.append(
            {
                "fault": plan.fault,
                "failure": result.outcome.failure,
                "wall_s": round(wall_s, 1),
                "phases_s": planned_s,
                "recovery_s": round(durations["undo"], 1),
                "overhead_s": round(wall_s - planned_s - durations["undo"], 1),
                "deploy_s": round(durations["deploy"], 1),
                "collect_s": round(durations["collect"], 1),
                "teardown_s": round(durations["teardown"], 1),
                "mib_on_disk": round(size / 2**20, 2),
                "host": {k: v for k, v in host.items() if k != "durations_s"},
            }
        )
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
