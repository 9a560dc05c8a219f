"""A campaign beside other work: every core has a busy loop, and all episodes are collected all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.datasets.dataset import open_dataset

COLLECT = "from faultset.collector.cli.collect import collect; collect()"
OPTIONS = (
    "--faults target-port,pod-kill --apps hotel --normal 1 --seed 3 "
    "--warmup 6s --healthy 20s --faulty 20s --cooldown 2s -v"
).split()


@pytest.fixture
def busy_loops() -> Iterator[None]:
    """Keep every core busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.slow
def test_a_campaign_completes_while_another_process_keeps_all_cores_busy(busy_loops: None, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COLLECT, *OPTIONS, "--out", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    dataset = open_dataset(tmp_path / "data")
    assert len(dataset.episodes) == 3
    print(done.stderr)
