"""What the numbers of a report depend on, and which files stand beside it."""

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
    """Describe processor, memory and system in a few words each."""
    return {
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory() -> str:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 2**20:.1f} GiB"
    return "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


FILES = (
    ("results.parquet", "one row for every answer, with the raw answer and the truth beside it"),
    ("leaderboard.json", "every number of this page with its interval, or why it is missing"),
    ("leaderboard.md", "the tables as text"),
)
Facts = list[tuple[str, str]]


def provenance(board: Leaderboard, rows: Sequence[ResultRow], now: datetime) -> list[tuple[str, Facts]]:
    """Groups of (name, value): data, code, run, machine."""
    settings = dict(board.settings)
    where = settings.pop("machine", None)
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
        *((name.replace("_", " "), _text(value)) for name, value in sorted(settings.items()) if name != "split"),
    ]
    place = list(where.items()) if isinstance(where, Mapping) else list(machine().items())
    return [("Data", data), ("Run", run), ("Code", code), ("Machine", place)]


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
