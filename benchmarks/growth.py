"""Growth of processor time and memory with ten and a hundred times as much data.

    python benchmarks/growth.py [--scale 10,100] [--only episodes,services,series,spans,recording,campaign]

Many episodes are copies of those of `datasets/sample`; services, series (more pods of each service) and spans grow in
one synthetic episode, and a recording grows from 15 minutes to 25 hours. "campaign" is the scheduling of empty episodes
(`benchmarks/collection/worker_campaign.py`). Each command runs in its own process. Processor time is summed over its
processes, memory is the largest of them. The growth is the exponent of the last step: 0 is constant, 1 is linear.
docs/results/costs.md shows measured figures (benchmarks/growth.md).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
import numpy as np
from baseline_costs import LABEL, SERVICES, START_NS, TARGET, EpisodeSize, draw_tables, write_large_episode
from evaluation_scale import link_episodes

from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import RecordingContext
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version

BASELINES = "ksigma,max-z,baro,pdiagnose,random"
SAMPLE = Path(__file__).parents[1] / "datasets" / "sample"
EPISODES = 10
SPANS = 5_000
CHUNK_S = 900
CAMPAIGN = 100
LINEAR = 1.1
NOISE = 0.25
"""Share of the smallest cost that a larger size must add to count."""
KIB_PER_MIB = 2**10


@dataclass(frozen=True)
class Cost:
    """Processor time and memory of a command."""

    cpu_s: float
    memory_mib: float


WriteDataset = Callable[[Path, int], Path]
"""Writes a dataset into a folder, enlarged by a factor, and returns its path."""
MeasureCommands = Callable[[Path, int], Iterator[tuple[str, Cost]]]
LAUNCHER = """
import json, os, resource, subprocess, sys
process = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([process.returncode, process.stderr[-500:], usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
"""Runs a command from a small process, because a process inherits the peak memory of its parent."""


def run(program: str, *arguments: str) -> Cost:
    """Run a command of faultset, or a script of this folder, and return its cost."""
    script = Path(__file__).parent / program
    start = [sys.executable, str(script)] if script.exists() else [str(Path(sys.executable).with_name(program))]
    command = [*start, *arguments]
    launched = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, *command], capture_output=True, check=True)
    code, message, cpu_s, memory_kib = json.loads(launched.stdout)
    if code:
        raise click.ClickException(f"{' '.join(command)}: {message}")
    return Cost(cpu_s, memory_kib / KIB_PER_MIB)


def measure_commands(
    folder: Path, factor: int, write: WriteDataset, layout: str = "rcaeval"
) -> Iterator[tuple[str, Cost]]:
    """Write a dataset and yield the costs of commands that read it whole, and of exporting and importing a layout."""
    dataset = str(write(folder, factor))
    yield "verify", run("faultset", "dataset", "verify", dataset)
    yield (
        f"evaluate --baselines {BASELINES}",
        run("evaluate", dataset, "--baselines", BASELINES, "--out", str(folder / "results")),
    )
    yield "explore", run("faultset", "dataset", "explore", dataset, "--out", str(folder / "page.html"))
    cases = str(folder / "cases")
    yield f"export --as {layout}", run("faultset", "dataset", "export", dataset, cases, "--as", layout)
    yield f"import {layout}", run("faultset", "dataset", "import", layout, cases, str(folder / "imported"))


def measure_campaign(folder: Path, factor: int) -> Iterator[tuple[str, Cost]]:
    """Yield the cost of scheduling a campaign."""
    episodes = ["--episodes", str(CAMPAIGN * factor), "--workers", "4"]
    yield "collect --scheduler, empty episodes", run("collection/worker_campaign.py", *episodes)


def write_many_episodes(folder: Path, factor: int) -> Path:
    """Write a dataset with more episodes."""
    return link_episodes(SAMPLE, folder / "data", EPISODES * factor)


def write_episode_dataset(folder: Path, size: EpisodeSize) -> Path:
    """Write a dataset with one large episode."""
    write_large_episode(folder / "data", size=size)
    create_version(folder / "data", provenance={})
    return folder / "data"


def write_many_services(folder: Path, factor: int) -> Path:
    """Write an episode with more services, each with the same number of series and calls a second."""
    return write_episode_dataset(
        folder,
        EpisodeSize(
            services=(*SERVICES[: TARGET + 1], *(f"service-{number}" for number in range(TARGET + 1, 8 * factor))),
            interval_s=15,
            log_lines=1_000 * factor,
            spans=1_000 * factor,
            requests=1_000,
        ),
    )


def write_many_spans(folder: Path, factor: int) -> Path:
    """Write an episode with more spans, log lines and requests."""
    return write_episode_dataset(
        folder, EpisodeSize(interval_s=15, log_lines=SPANS * factor, spans=SPANS * factor, requests=500 * factor)
    )


def write_many_series(folder: Path, factor: int) -> Path:
    """Write an episode with more pods of each service, each with its own metric series."""
    size = EpisodeSize(services=SERVICES, interval_s=15, log_lines=1_000, spans=1_000, requests=1_000, pods=factor)
    return write_episode_dataset(folder, size)


def write_long_recording(folder: Path, factor: int) -> Path:
    """Write a longer recording, with an incident in every chunk."""
    rng = np.random.default_rng(0)
    size = EpisodeSize(services=SERVICES, length_s=CHUNK_S, onset_s=300, interval_s=15)
    size = replace(size, log_lines=1_000, spans=5_000, requests=5_000)
    context = RecordingContext(
        recording="long",
        app="large",
        platform="synthetic",
        source_intervals_s={"metrics": 15.0, "objects": 10.0},
        services=SERVICES,
        calls=size.calls,
        workload_entry=SERVICES[0],
    )
    writer = RecordingWriter(folder / "data", context)
    for number in range(factor):
        start_ns = START_NS + number * CHUNK_S * SECOND_NS
        chunk = replace(size, start_ns=start_ns)
        tables = {table: [rows] for table, rows in draw_tables(rng, chunk)}
        onset_ns = start_ns + size.onset_s * SECOND_NS
        end_ns = onset_ns + 120 * SECOND_NS
        incident = {name: LABEL[name] for name in ("fault", "targets", "root_causes", "parameters", "verdict", "seed")}
        incident |= {"incident": f"i{number}", "inject_start": onset_ns, "inject_done": onset_ns}
        incident |= dict.fromkeys(("recover_start", "recover_done", "healthy_again"), end_ns)
        incident |= {"first_manifest": onset_ns}
        writer.append(start_ns, start_ns + CHUNK_S * SECOND_NS, tables, truth={"incidents": [incident]})
    create_version(folder / "data", provenance={})
    return folder / "data"


DIMENSIONS: dict[str, MeasureCommands] = {
    "episodes": partial(measure_commands, write=write_many_episodes),
    "services": partial(measure_commands, write=write_many_services),
    "series": partial(measure_commands, write=write_many_series),
    "spans": partial(measure_commands, write=write_many_spans),
    "recording": partial(measure_commands, write=write_long_recording, layout="tsb-ad"),
    "campaign": measure_campaign,
}


def compute_growth_exponent(values: Sequence[float], factors: Sequence[int]) -> float:
    """Return the exponent of the last step.

    The cost at the smallest size, which is mostly the start of the program, is subtracted unless the step before the
    last added so little to it that the difference is noise.
    """
    base = values[0] if values[-2] - values[0] > NOISE * values[0] else 0.0
    last, previous = values[-1] - base, values[-2] - base
    if previous <= 0 or last <= 0:
        return 0.0
    first = factors[0] if base else 0
    return math.log(last / previous) / math.log((factors[-1] - first) / (factors[-2] - first))


@click.command(help=__doc__)
@click.option("--scale", default="10,100", show_default=True, help="Factors; at least two.")
@click.option("--only", default=",".join(DIMENSIONS), show_default=True, help="Dimensions to grow.")
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
                for command, cost in DIMENSIONS[name](Path(folder), factor):
                    costs.setdefault(command, []).append(cost)
        for command, measured in costs.items():
            cells = []
            for values in ([cost.cpu_s for cost in measured], [cost.memory_mib for cost in measured]):
                exponent = compute_growth_exponent(values, factors)
                mark = " (more than linear)" if exponent > LINEAR else ""
                cells.append(f"{', '.join(f'{value:.3g}' for value in values)} | {exponent:.2f}{mark}")
            click.echo(f"| {name} | `{command}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
