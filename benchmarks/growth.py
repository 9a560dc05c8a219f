"""Growth of processor time and memory with ten and a hundred times as many episodes, services or spans.

    python benchmarks/growth.py [--scale 10,100] [--only episodes,services,spans]

Many episodes are copies of those of `datasets/sample`; services and spans grow in one synthetic episode. Each command
runs in its own process. Processor time is summed over its processes, memory is the largest of them. The growth
is the exponent of the last step: 0 is constant, 1 is linear.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from baseline_costs import TARGET, EpisodeSize, write_large_episode
from evaluation_scale import link_episodes

from faultset.datasets.format.versions import create_version

BASELINES = "ksigma,max-z,baro,pdiagnose,random"
SAMPLE = Path(__file__).parents[1] / "datasets" / "sample"
EPISODES = 10
SERVICES = 8
SPANS = 5_000
LINEAR = 1.1
KIB_PER_MIB = 2**10


@dataclass(frozen=True)
class Cost:
    """Processor time and memory of a command."""

    cpu_s: float
    memory_mib: float


LAUNCHER = """
import json, os, resource, subprocess, sys
process = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([process.returncode, process.stderr[-500:], usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
"""Runs a command from a small process, because a process inherits the peak memory of its parent."""


def run(*arguments: str) -> Cost:
    """Run a faultset command and return its cost."""
    command = [str(Path(sys.executable).with_name(arguments[0])), *arguments[1:]]
    launched = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *command], capture_output=True, check=True)
    code, message, cpu_s, memory_kib = json.loads(launched.stdout)
    if code:
        raise click.ClickException(f"{' '.join(arguments)}: {message}")
    return Cost(cpu_s, memory_kib / KIB_PER_MIB)


def measure_dataset(dataset: Path, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Yield the costs of commands that read a whole dataset."""
    yield "verify", run("faultset", "dataset", "verify", str(dataset))
    yield (
        f"evaluate --baselines {BASELINES}",
        run("evaluate", str(dataset), "--baselines", BASELINES, "--out", str(folder / "results")),
    )
    yield "explore", run("faultset", "dataset", "explore", str(dataset), "--out", str(folder / "page.html"))
    cases = folder / "cases"
    yield "export --as rcaeval", run("faultset", "dataset", "export", str(dataset), str(cases), "--as", "rcaeval")
    yield "import rcaeval", run("faultset", "dataset", "import", "rcaeval", str(cases), str(folder / "imported"))


def write_many_episodes(folder: Path, factor: int) -> Path:
    """Write a dataset with more episodes."""
    return link_episodes(SAMPLE, folder / "data", EPISODES * factor)


def write_large_dataset(folder: Path, size: EpisodeSize) -> Path:
    """Write a dataset with one large episode."""
    write_large_episode(folder / "data", size=size)
    create_version(folder / "data", provenance={})
    return folder / "data"


def write_many_services(folder: Path, factor: int) -> Path:
    """Write an episode with more services, each with the same number of series and calls a second."""
    return write_large_dataset(
        folder,
        EpisodeSize(
            services=tuple(
                f"service-{chr(97 + number) if number <= TARGET else number}" for number in range(SERVICES * factor)
            ),
            interval_s=15,
            log_lines=1_000 * factor,
            spans=1_000 * factor,
            requests=1_000,
        ),
    )


def write_many_spans(folder: Path, factor: int) -> Path:
    """Write an episode with more spans, log lines and requests."""
    return write_large_dataset(
        folder, EpisodeSize(interval_s=15, log_lines=SPANS * factor, spans=SPANS * factor, requests=500 * factor)
    )


SIZES: dict[str, Callable[[Path, int], Path]] = {
    "episodes": write_many_episodes,
    "services": write_many_services,
    "spans": write_many_spans,
}


def compute_growth_exponent(values: Sequence[float], factors: Sequence[int]) -> float:
    """Return the exponent of the last step, after the cost at the smallest size was subtracted from all."""
    base = values[0]
    last, previous = values[-1] - base, values[-2] - base
    if previous <= 0 or last <= 0:
        return 0.0
    return math.log(last / previous) / math.log((factors[-1] - factors[0]) / (factors[-2] - factors[0]))


@click.command(help=__doc__)
@click.option("--scale", default="10,100", show_default=True, help="Factors; at least two.")
@click.option("--only", default=",".join(SIZES), show_default=True, help="Dimensions to grow.")
def main(scale: str, only: str) -> None:
    """Print a table of each command's costs and its growth."""
    factors = [1, *map(int, scale.split(","))]
    click.echo(
        f"| growing | command | CPU s at {', '.join(f'{factor}x' for factor in factors)} | growth | MiB | growth |"
    )
    click.echo("|---|---|---|---|---|---|")
    for name in only.split(","):
        costs: dict[str, list[Cost]] = {}
        for factor in factors:
            with tempfile.TemporaryDirectory() as folder:
                for command, cost in measure_dataset(SIZES[name](Path(folder), factor), Path(folder)):
                    costs.setdefault(command, []).append(cost)
                shutil.rmtree(Path(folder) / "data")
        for command, measured in costs.items():
            cells = []
            for values in ([cost.cpu_s for cost in measured], [cost.memory_mib for cost in measured]):
                exponent = compute_growth_exponent(values, factors)
                mark = " (more than linear)" if exponent > LINEAR else ""
                cells.append(f"{', '.join(f'{value:.3g}' for value in values)} | {exponent:.2f}{mark}")
            click.echo(f"| {name} | `{command}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
