"""Whether a long campaign and a large evaluation stay as small as they begin: memory, files, threads, ports, leftovers.

    python benchmarks/soak.py [--episodes 100] [--evaluated 2000] [--check]

Collects short episodes of hotel, makes copies of them and evaluates these, with the commands of a user. Processes
are looked at once a second. Prints one JSON object: for each kind of process the most that it used from the first to
the third tenth of the time, and in the last two tenths. `--check` ends with exit code 1 when something has grown.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from evaluation_scale import linked

FAULTS = ("pod-kill", "pod-failure", "target-port", "scale-to-zero")
PHASES = "--step 500ms --warmup 4s --baseline 10s --fault 10s --cooldown 2s".split()
BASELINES = "ksigma,always-yes,clock,baro,max-z,random,most-frequent"
MIB = 2**20
GROWTH_MIB = 16.0
"""How much more memory a kind of process may use at the end."""
GROWTH_COUNT = 4
"""How many more files, threads, ports, processes or temporary files there may be at the end."""
MEASURES = ("memory_mib", "files", "threads", "ports", "processes")


@dataclass
class Watch:
    """Looks at the processes of a command while it runs.

    Parameters
    ----------
    scratch
        Folder for temporary files.
    """

    scratch: Path
    samples: list[tuple[float, dict[str, dict[str, float]]]] = field(default_factory=list)

    def run(self, command: list[str]) -> float:
        """Run a command to its end and return its seconds; RuntimeError if it fails."""
        began = time.perf_counter()
        environment = os.environ | {"TMPDIR": str(self.scratch)}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            over = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(psutil.Process(process.pid), over))
            watcher.start()
            try:
                said, _ = process.communicate()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                raise
            finally:
                over.set()
                watcher.join()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said[-2000:]}")
        return time.perf_counter() - began

    def _watch(self, main: psutil.Process, over: threading.Event) -> None:
        began = time.perf_counter()
        while not over.wait(1.0):
            kinds: dict[str, dict[str, float]] = {}
            for process in _tree(main):
                kind = "command" if process == main else _kind(process)
                for measure, value in _use(process).items():
                    row = kinds.setdefault(kind, dict.fromkeys(MEASURES, 0.0))
                    row[measure] = row[measure] + value if measure == "processes" else max(row[measure], value)
            kinds["temporary files"] = {"files": float(sum(1 for _ in self.scratch.iterdir()))}
            self.samples.append((time.perf_counter() - began, kinds))

    def most(self, begin: float, end: float) -> dict[str, dict[str, float]]:
        """Return the most that each kind of process used in that part of the time, from 0 to 1."""
        result: dict[str, dict[str, float]] = {}
        total_s = self.samples[-1][0]
        for at_s, kinds in self.samples:
            if not begin <= at_s / total_s <= end:
                continue
            for kind, row in kinds.items():
                known = result.setdefault(kind, {})
                for measure, value in row.items():
                    known[measure] = max(known.get(measure, 0.0), round(value, 1))
        return result


def _tree(main: psutil.Process) -> list[psutil.Process]:
    try:
        return [main, *main.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kind(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
        name = process.name()
    except psutil.Error:
        return "ended"
    if "faultset.collector.episodes.process" in words:
        return "episode"
    return name if name in ("node", "relay", "telemetry", "load", "redis-server") else "others"


def _use(process: psutil.Process) -> Mapping[str, float]:
    try:
        with process.oneshot():
            return {
                "memory_mib": process.memory_info().rss / MIB,
                "files": process.num_fds(),
                "threads": process.num_threads(),
                "ports": sum(one.status == psutil.CONN_LISTEN for one in process.net_connections()),
                "processes": 1.0,
            }
    except psutil.Error:
        return {}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--evaluated", type=int, default=2000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    # sockets lie in it, whose paths have to be short
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp") as folder:
        figures = {
            "campaign": _campaign(Path(folder), options.episodes),
            "evaluation": _evaluation(Path(folder), options.evaluated),
        }
    print(json.dumps(figures, indent=1))
    grown = [f"{name}: {row}" for name, part in figures.items() for row in part["grown"] + part["left"]]
    for sentence in grown:
        print(sentence, file=sys.stderr)
    return 1 if options.check and grown else 0


def _campaign(folder: Path, episodes: int) -> dict[str, Any]:
    root, scratch = folder / "data", folder / "c"
    scratch.mkdir()
    without = max(1, episodes // 5)
    repeats = max(1, round((episodes - without) / len(FAULTS)))
    planned = repeats * len(FAULTS) + without
    command = [_program("collect"), "--faults", ",".join(FAULTS), "--apps", "hotel", "--out", str(root)]
    command += ["--repeat", str(repeats), "--normal", str(without), *PHASES]
    return {"episodes": planned, **_figures(Watch(scratch), command)}


def _evaluation(folder: Path, episodes: int) -> dict[str, Any]:
    scratch, out = folder / "e", folder / "results"
    scratch.mkdir()
    dataset = linked(folder / "data", folder / "many", episodes)
    command = [_program("evaluate"), str(dataset), "--baselines", BASELINES, "--out", str(out)]
    return {"episodes": episodes, **_figures(Watch(scratch), command)}


def _figures(watch: Watch, command: list[str]) -> dict[str, Any]:
    wall_s = watch.run(command)
    early, late = watch.most(0.1, 0.3), watch.most(0.8, 1.0)
    return {
        "wall_s": round(wall_s, 1),
        "early": early,
        "late": late,
        "grown": [
            f"{measure} of {kind} grew from {early[kind][measure]:g} to {value:g}"
            for kind, row in late.items()
            for measure, value in row.items()
            if kind in early and value - early[kind][measure] > _allowed(measure)
        ],
        "left": sorted(path.name for path in watch.scratch.iterdir()),
    }


def _allowed(measure: str) -> float:
    return GROWTH_MIB if measure == "memory_mib" else GROWTH_COUNT


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


if __name__ == "__main__":
    sys.exit(main())
