"""Processor seconds of quick episodes on the embedded platform, by part and phase, in one or two checkouts.

    python benchmarks/collection/episode_cpu.py [--apps hotel,social] [--fault noop] [--repeat 2]
    python benchmarks/collection/episode_cpu.py --before OTHER_CHECKOUT

Prints a table for each checkout: mean seconds per episode of the episode's process, of the platform's processes, of
services and of stores. With --before, each episode runs in both checkouts at the same time, so that other load affects
both equally. Episodes skip the checks that make them void on a busy host and do not wait for the recovery.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from faultset.collector.campaigns.episode_processes import PROGRAM, EpisodeHost, EpisodeResult
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.executors import LocalExecutor
from faultset.collector.episodes import actions, process, recording
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.local.resource_usage import read_cpu_ns

ROOTS = ("collector", "datasets", "baselines", "evaluators")
PARTS = ("episode", "node", "relay", "telemetry", "load", "stores", "services")
COLUMNS = ("start", "deploy", "phases", "collect", "teardown")
COLUMN_OF_PHASE = {"new": "start", "deploy": "deploy", "collect": "collect", "teardown": "teardown", "done": "teardown"}
SAMPLE_S = 0.05
PROGRAM_OF_EPISODE = (*PROGRAM[:-1], "episode_cpu:run_episode")

Use = dict[tuple[str, str], float]
"""CPU seconds by part and column."""


class ProcessTree:
    """Adds up the CPU time of the descendants of this process.

    Parameters
    ----------
    episode
        Process of the episode; its descendants are distinguished by name.
    """

    def __init__(self, episode: int):
        self._episode = episode
        self._used_ns: dict[int, int] = {}
        self._parts: dict[int, str] = {}
        self._others: set[int] = set()
        self.seconds: Use = defaultdict(float)

    def sample(self, column: str) -> None:
        """Add the CPU time since the last sample to a column."""
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            if pid in self._others:
                continue
            if pid not in self._used_ns and not self._is_ours(pid):
                self._others.add(pid)
                continue
            used_ns, before_ns = read_cpu_ns(pid), self._used_ns.get(pid, 0)
            if used_ns > before_ns:
                self._used_ns[pid] = used_ns
                self.seconds[self._part(pid), column] += (used_ns - before_ns) / 1e9

    def _is_ours(self, pid: int) -> bool:
        while pid not in (0, 1, os.getpid()):
            if pid in (self._episode, *self._used_ns):
                return True
            try:
                pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except OSError:
                return False
        return False

    def _part(self, pid: int) -> str:
        if pid == self._episode:
            return "episode"
        try:
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        except OSError:
            return self._parts.get(pid, "services")
        kind = name if name in PARTS else "stores" if name.startswith("redis-server") else "services"
        # a helper is called python until it sets its name
        self._parts[pid] = kind
        return kind


def run_episode() -> None:
    """Run an episode that ignores the load of the host; entry point of the episode's process."""
    actions.LARGEST_DELAY_MS = math.inf
    actions.EpisodeActions.check_reference = lambda self: None
    actions.EpisodeActions.check_warm = lambda self: None
    actions.EpisodeActions._await_recovery = lambda self: None
    recording.reason_to_discard = lambda judgement, *, is_busy: ""
    process.main()


def measure(app: str, fault: str) -> None:
    """Run one quick episode and print its use as JSON."""
    request = make_request(faults=[fault], apps=[app], platform="local", seed=1, normal=0, profile="quick")
    (plan,) = plan_campaign(request)
    results: list[EpisodeResult] = []
    with tempfile.TemporaryDirectory(prefix="faultset-bench-") as folder:
        executor = LocalExecutor(EpisodeHost(1), Path(folder), {}, program=PROGRAM_OF_EPISODE)
        episode = executor.start(WaitingEpisode(plan=plan))
        tree = ProcessTree(episode.process.pid)
        while not results:
            tree.sample(COLUMN_OF_PHASE.get(episode.phase, "phases"))
            results = [result for _, result in executor.wait(SAMPLE_S)]
        executor.close()
    if results[0].failure:
        raise SystemExit(f"{app}: {results[0].failure}")
    print(json.dumps([[part, column, seconds] for (part, column), seconds in tree.seconds.items()]))


def start_measurement(checkout: Path, app: str, fault: str) -> subprocess.Popen[str]:
    """Measure one episode with the sources of a checkout."""
    path = os.pathsep.join([*(str(checkout / root) for root in ROOTS), str(Path(__file__).parent)])
    command = [sys.executable, __file__, "--measure", "--apps", app, "--fault", fault]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)


def print_table(name: str, uses: list[Use]) -> float:
    """Print the mean use per episode; return the total."""
    mean = {key: sum(use.get(key, 0.0) for use in uses) / len(uses) for use in uses for key in use}
    print(f"\n{name}, {len(uses)} episodes: CPU seconds per episode")
    print(f"{'':10}" + "".join(f"{column:>10}" for column in (*COLUMNS, "total")))
    for part in PARTS:
        row = [mean.get((part, column), 0.0) for column in COLUMNS]
        print(f"{part:10}" + "".join(f"{seconds:10.2f}" for seconds in (*row, sum(row))))
    row = [sum(seconds for (_, name), seconds in mean.items() if name == column) for column in COLUMNS]
    print(f"{'total':10}" + "".join(f"{seconds:10.2f}" for seconds in (*row, sum(row))))
    return sum(row)


def compare(options: argparse.Namespace) -> None:
    """Measure all episodes and print the tables."""
    checkouts = [*([options.before.resolve()] if options.before else []), Path(__file__).resolve().parents[2]]
    uses: dict[Path, list[Use]] = {checkout: [] for checkout in checkouts}
    for app in options.apps.split(",") * options.repeat:
        began = time.monotonic()
        running = [(checkout, start_measurement(checkout, app, options.fault)) for checkout in checkouts]
        for checkout, child in running:
            output, _ = child.communicate()
            if child.returncode:
                raise SystemExit(f"{checkout}: the episode of {app} failed")
            use = {(part, column): seconds for part, column, seconds in json.loads(output)}
            uses[checkout].append(use)
            print(f"{checkout} {app}: {sum(use.values()):.2f} CPU s, {time.monotonic() - began:.0f} s", flush=True)
    totals = [print_table(str(checkout), uses[checkout]) for checkout in checkouts]
    if options.before:
        print(f"\nratio: {totals[1] / totals[0]:.3f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apps", default="hotel,social,astronomy,tidb")
    parser.add_argument("--fault", default="noop")
    parser.add_argument("--repeat", type=int, default=1, help="episodes of each application")
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.apps, options.fault)
    else:
        compare(options)


if __name__ == "__main__":
    main()
