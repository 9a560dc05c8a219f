"""Short campaigns on a cluster, in processes of their own, and waiting for what their episodes come to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COLLECT = [sys.executable, "-c", "from faultset.collector.cli.collect import collect; collect()"]
SHORT = ["--warmup", "6s", "--healthy", "25s", "--faulty", "25s", "--cooldown", "1s", "--platform", "kubernetes"]
_TIMEOUT_S = 240


def await_phase(out: Path, phase: str, process: subprocess.Popen, said: Callable[[], str]) -> None:
    """Wait until an episode of a running campaign is in a phase.

    Parameters
    ----------
    out
        Folder of the campaign's dataset.
    said
        Returns what the process has printed, for when the phase does not come.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        for note in (out / ".running").glob("*.json"):
            journal = Path(json.loads(note.read_text())["folder"]) / "journal.jsonl"
            if journal.exists() and f'"name": "{phase}"' in journal.read_text():
                return
        time.sleep(0.2)
    raise AssertionError(f"phase {phase} was not reached: {said()}")
