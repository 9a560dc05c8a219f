"""Provenance of a dataset: code, command and machines."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

import faultset.collector
from faultset.collector.campaigns.episode_queue import VoidAttempt
from faultset.core.code_identity import path_identity

PACKAGES = ("apps", "campaigns", "episodes", "faults", "load", "plans", "platforms", "runtime", "sources", "verdicts")
"""Packages of the collector whose code determines what an episode contains."""


def describe_machine() -> dict[str, Any]:
    """Describe a machine on which episodes ran."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def collector_code() -> dict[str, Any]:
    """Return a digest of each package in PACKAGES, and the commit if the collector runs from a git checkout."""
    root = Path(str(faultset.collector.__file__)).parent
    digests = {name: path_identity(root / name).digest for name in PACKAGES}
    return {"packages": digests} | _describe_checkout(root)


def _describe_checkout(folder: Path) -> dict[str, Any]:
    """Return the commit of a git checkout and the number of changed files; empty for other folders."""
    commit = _run_git(folder, "rev-parse", "HEAD")
    tracked = _run_git(folder, "ls-files", "--error-unmatch", "__init__.py")
    if not commit or not tracked:
        return {}
    changed = _run_git(folder, "status", "--porcelain", "--untracked-files=no", ":/") or ""
    return {"commit": commit, "changed_files": len(changed.splitlines())}


def _run_git(folder: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    result = subprocess.run([git, "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def command_line() -> str | None:
    """Return the command line of `faultset`; None if another program runs this code."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    return shlex.join([program, *sys.argv[1:]]) if program == "faultset" else None


def count_void_attempts(attempts: Iterable[VoidAttempt]) -> dict[str, dict[str, int]]:
    """Count void attempts by cause, separately with and without a fault."""
    counts: dict[str, Counter[str]] = {"with a fault": Counter(), "without a fault": Counter()}
    for attempt in attempts:
        counts["with a fault" if attempt.has_fault else "without a fault"][attempt.cause] += 1
    return {group: dict(sorted(causes.items())) for group, causes in counts.items()}
