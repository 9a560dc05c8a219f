"""Data, settings, code and machine behind the numbers of a report."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from faultset.evaluators.leaderboards.records import Leaderboard
from faultset.evaluators.results.rows import ResultRow


def machine() -> dict[str, str]:
    """Return the processor, cores, memory and system of this machine."""
    return {
        "processor": _read_processor(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": _read_memory(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _read_processor() -> str:
    for line in _read_lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _read_memory() -> str:
    for line in _read_lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.1f} GiB"
    return "unknown"


def _read_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


FILES = (
    ("results.parquet", "a row for every answer, with the raw answer and the truth"),
    ("leaderboard.json", "all numbers of this page with their intervals, or the reasons why they are missing"),
    ("leaderboard.md", "the tables as text"),
)
Facts = list[tuple[str, str]]


def provenance(board: Leaderboard, rows: Sequence[ResultRow], now: datetime) -> list[tuple[str, Facts]]:
    """Return groups of names and values: data, run, code, machine."""
    settings = dict(board.settings)
    stored = settings.pop("machine", None)
    data = [
        ("dataset", board.dataset),
        ("version", board.version),
        ("sha256 of the version", board.digest or "unknown"),
        ("split", board.split),
        ("phase lengths", ", ".join(f"{n} {name}" for name, n in sorted(board.profiles.items()))),
        ("read from", str(settings.pop("source", "unknown"))),
    ]
    others = [(name, code) for name, code in board.method_codes.items() if code and not code.startswith("faultset ")]
    code = [("faultset", board.code), *others, *sorted(board.libraries.items())]
    run = [
        ("seeds", ", ".join(map(str, sorted({row.seed for row in rows})))),
        ("page written", now.strftime("%Y-%m-%d %H:%M UTC")),
        *(
            (name.replace("_", " "), _format_value(value))
            for name, value in sorted(settings.items())
            if name != "split"
        ),
    ]
    hardware = dict(stored) if isinstance(stored, Mapping) else machine()
    return [("Data", data), ("Run", run), ("Code", code), ("Machine", list(hardware.items()))]


def _format_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
