"""Time of `faultset diagnose` for an hour of 20 services, with the start of Python.

    python benchmarks/diagnosis_time.py [--runs 3]

The synthetic hour has 1,480 metric series every 15 s, 400,000 log lines and 400,000 spans. The command runs on two
cores. The first run fills the caches of the operating system and of Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from baseline_costs import SERVICES, EpisodeSize, write_large_episode

HOUR = EpisodeSize(
    services=(*SERVICES, "service-t"),
    length_s=3600,
    reference_s=2400,
    onset_s=3000,
    interval_s=15,
    log_lines=400_000,
    spans=400_000,
    requests=36_000,
)
CORES = 2


@click.command(help=__doc__)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Measured runs after the first.")
def main(runs: int) -> None:
    """Print wall-clock and processor seconds of each run."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as folder:
        episode = write_large_episode(Path(folder), size=HOUR)
        command = [str(Path(sys.executable).with_name("faultset")), "diagnose", str(episode)]
        output = ""
        for number in range(runs + 1):
            started, used = time.monotonic(), sum(os.times()[2:4])
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            wall_s, cpu_s = time.monotonic() - started, sum(os.times()[2:4]) - used
            print(f"run {number}: {wall_s:.1f} s, {cpu_s:.1f} s of processor time")
        print(output)


if __name__ == "__main__":
    main()
