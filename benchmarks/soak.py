"""Check that the memory, files, threads and ports of long campaigns and evaluations do not grow.

    python benchmarks/soak.py [--episodes 100] [--evaluated 2000] [--out FILE] [--check]
    python benchmarks/soak.py --episodes 10 --evaluated 200 --check        # a tenth of it

Collects short episodes of hotel, copies and evaluates them, with the commands of a user, and measures all processes
every two seconds. The time from the first to the last answer of an evaluation is divided into a hundred equal parts,
which count as episodes. The first tenth of the episodes is ignored. Prints one JSON object with the usage by one
process of each kind, as medians of the first and of the last fifth, and the usage that grew beyond its limit. `--out`
stores the values of every episode. `--check` ends with exit code 1 if something grew or was left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from evaluation_scale import link_episodes

FAULTS = ("pod-kill", "pod-failure", "target-port", "scale-to-zero")
PHASES = "--step 500ms --warmup 3s --healthy 10s --faulty 10s --cooldown 2s".split()
BASELINES = "ksigma,always-yes,clock,baro,max-z,random,most-frequent"
MIB = 2**20
EVERY_S = 2.0
PARTS = 100
"""Number of equal stretches into which an evaluation is divided."""
ALLOWED = {"memory_mib": 16.0}
"""Permitted growth of one process."""
ALLOWED_COUNT = 4.0
"""The same for numbers of files, threads, ports, processes and temporary files."""
FILES_BY_EPISODE = 3
"""Number of files that a campaign has open for each running episode."""
MIN_TO_COMPARE = {"campaign": 50, "evaluation": 1000}
"""Minimum number of episodes to compare all processes. With fewer episodes only the command itself is compared, because
the processes of an episode depend on its fault and load, and a short evaluation ends soon after its processes start."""
FINISHED = re.compile(r"\[\d+/\d+\] ")
ANSWERED = re.compile(r"\w+ [1-9]\d*/\d+ after ")

Use = dict[tuple[str, str], float]
"""Usage by one process, by kind of process and measure."""


@dataclass
class Watch:
    """Measures the processes of a command while it runs.

    Parameters
    ----------
    scratch
        Folder for temporary files.
    """

    scratch: Path
    samples: list[tuple[float, Use]] = field(default_factory=list)
    finished_s: list[float] = field(default_factory=list)
    answers_s: list[float] = field(default_factory=list)
    """Time at which an evaluation printed its number of answers."""
    kinds: dict[psutil.Process, str] = field(default_factory=dict)

    def run(self, command: list[str]) -> float:
        """Run a command to its end and return its seconds; RuntimeError if it fails."""
        began = time.perf_counter()
        environment = os.environ | {"TMPDIR": str(self.scratch)}
        output: list[str] = []
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            over = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(psutil.Process(process.pid), over, began))
            watcher.start()
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    output.append(line)
                    if FINISHED.match(line):
                        self.finished_s.append(time.perf_counter() - began)
                        print(line, end="", file=sys.stderr, flush=True)
                    if ANSWERED.search(line):
                        self.answers_s.append(time.perf_counter() - began)
            except BaseException:
                process.send_signal(signal.SIGINT)
                raise
            finally:
                over.set()
                watcher.join()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {''.join(output[-20:])}")
        return time.perf_counter() - began

    def _watch(self, main: psutil.Process, over: threading.Event, began: float) -> None:
        while not over.wait(EVERY_S):
            use = self._use(main)
            if use:
                self.samples.append((time.perf_counter() - began, use))

    def _use(self, main: psutil.Process) -> Use:
        try:
            processes = [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return {}
        use: Use = defaultdict(float)
        listening = Counter(
            connection.pid for connection in psutil.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
        )
        for process in processes:
            try:
                kind = "command" if process == main else self._kind(process)
                with process.oneshot():
                    measures = {
                        "memory_mib": process.memory_info().rss / MIB,
                        "files": process.num_fds(),
                        "threads": process.num_threads(),
                    }
            except psutil.Error:
                continue  # it has ended
            for measure, value in (measures | {"ports": listening[process.pid]}).items():
                use[kind, measure] = max(use[kind, measure], value)
            use[kind, "processes"] += 1
        running = use.get(("episode", "processes"), 0.0)
        for kind in {kind for kind, _ in use} - {"command"}:
            # per episode, because the number of concurrent episodes depends on the load
            use[kind, "processes"] /= max(1.0, running)
        use["command", "files"] -= FILES_BY_EPISODE * running
        use["command", "temporary_files"] = max(0.0, sum(1 for _ in self.scratch.iterdir()) - running)
        return dict(use)

    def _kind(self, process: psutil.Process) -> str:
        kind = self.kinds.get(process)
        if kind is None:
            words = process.cmdline()
            kind = self.kinds[process] = _kind_of(process.name(), words)
            if len(words) == 0:
                del self.kinds[process]
        return kind

    def by_episode(self) -> dict[str, list[float]]:
        """Return kind and measure -> usage during each episode, or during each part of an evaluation."""
        begin, ends = 0.0, self.finished_s
        if not ends:
            begin, end = self.answers_s[0], self.answers_s[-1]
            ends = [begin + (end - begin) * (index + 1) / PARTS for index in range(PARTS)]
        result: dict[str, list[float]] = {}
        for number, end in enumerate(ends):
            most: dict[tuple[str, str], list[float]] = defaultdict(list)
            for at_s, use in self.samples:
                if begin < at_s <= end:
                    for key, value in use.items():
                        most[key].append(value)
            for (kind, measure), values in most.items():
                series = result.setdefault(f"{kind} {measure}", [float("nan")] * len(ends))
                counted = measure in ("processes", "temporary_files")
                series[number] = round(statistics.median(values) if counted else max(values), 2)
            begin = end
        return result


def _kind_of(name: str, words: list[str]) -> str:
    text = " ".join(words)
    if name in ("relay", "telemetry", "load"):
        return name
    if name == "redis-server":
        return "store"
    if "faultset.collector.episodes.process" in text:
        # forked processes have the command line of the episode
        other = "other" if name in ("launcher", "node") else "service"
        return "episode" if name.startswith("python") else other
    return "service" if "faultset-service" in text else "other"


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100, help="episodes to collect, without --dataset")
    parser.add_argument("--evaluated", type=int, default=2000, help="0 for no evaluation")
    parser.add_argument("--dataset", type=Path, help="a dataset to evaluate instead of collecting one")
    parser.add_argument("--out", type=Path, help="file for the values of every episode")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parts: dict[str, dict[str, Any]] = {}
    # it contains sockets, whose paths must be short
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp") as folder:
        if options.dataset is None:
            parts["campaign"] = _campaign(Path(folder), options.episodes)
        if options.evaluated:
            source = options.dataset or Path(folder) / "data"
            parts["evaluation"] = _evaluation(Path(folder), source, options.evaluated)
    if options.out:
        options.out.write_text(json.dumps(parts))
    print(
        json.dumps(
            {
                name: {key: value for key, value in figures.items() if key != "by_episode"}
                for name, figures in parts.items()
            },
            indent=1,
        )
    )
    wrong = [
        f"{name}: {problem}" for name, figures in parts.items() for problem in (*figures["grown"], *figures["left"])
    ]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if options.check and wrong else 0


def _campaign(folder: Path, episodes: int) -> dict[str, Any]:
    root, scratch = folder / "data", folder / "c"
    scratch.mkdir()
    without = max(1, episodes // 5)
    repeats = max(1, round((episodes - without) / len(FAULTS)))
    planned = repeats * len(FAULTS) + without
    command = [_program("collect"), "--faults", ",".join(FAULTS), "--apps", "hotel", "--out", str(root)]
    command += ["--repeat", str(repeats), "--normal", str(without), *PHASES]
    return _figures("campaign", planned, Watch(scratch), command)


def _evaluation(folder: Path, source: Path, episodes: int) -> dict[str, Any]:
    scratch, out = folder / "e", folder / "results"
    scratch.mkdir()
    dataset = link_episodes(source, folder / "many", episodes)
    command = [_program("evaluate"), str(dataset), "--baselines", BASELINES, "--out", str(out)]
    return _figures("evaluation", episodes, Watch(scratch), command)


def _figures(name_of_run: str, episodes: int, watch: Watch, command: list[str]) -> dict[str, Any]:
    wall_s = watch.run(command)
    is_long = episodes >= MIN_TO_COMPARE[name_of_run]
    values = watch.by_episode()
    verdicts = {name: _verdict(series) for name, series in sorted(values.items())}
    return {
        "episodes": episodes,
        "wall_s": round(wall_s, 1),
        "samples": len(watch.samples),
        "first_fifth_last_fifth": verdicts,
        "grown": [
            f"{name} grew from {early:g} to {late:g}"
            for name, (early, late) in verdicts.items()
            if (is_long or name.startswith("command ")) and late - early > ALLOWED.get(name.split()[-1], ALLOWED_COUNT)
        ],
        "left": sorted(f"{path.name} is left" for path in watch.scratch.iterdir()),
        "by_episode": values,
    }


def _verdict(series: list[float]) -> tuple[float, float]:
    """Return the medians of the first and last fifth after skipping the first tenth."""
    settled = [value for value in series[len(series) // 10 :] if value == value]
    fifth = max(1, len(settled) // 5)
    if not settled:
        return 0.0, 0.0
    return round(statistics.median(settled[:fifth]), 2), round(statistics.median(settled[-fifth:]), 2)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


if __name__ == "__main__":
    sys.exit(main())
