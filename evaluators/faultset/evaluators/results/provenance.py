"""Provenance of answers: settings, code, library versions and machine."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.code_identity import CodeIdentity, code_identity, code_paths, own_digest, plugin_identity
from faultset.core.files import parquet_path
from faultset.core.plugins import load_plugins, plugins

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec


BASELINES = "faultset.baselines"
SCORERS = "faultset.scorers"
_LIBRARIES = ("numpy", "pandas", "scipy", "scikit-learn", "pyarrow")
_OPTIONAL = ("jax", "optax")


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return a short stable hash of settings."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def code_version() -> str:
    """Return faultset's version; in a checkout also its commit, and a hash of the files if they were edited."""
    try:
        version = metadata.version("faultset")
    except metadata.PackageNotFoundError:
        version = "unknown"
    folder = Path(__file__).resolve().parent
    commit = _run_git(folder, "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    if commit.endswith("-dirty"):
        commit = f"{commit}.{own_digest()}"
    return f"{version}+{commit}" if commit else version


def method_code(spec: BaselineSpec) -> CodeIdentity:
    """Identify the code of a baseline by distribution, version and content."""
    return code_identity(spec.factory, plugins(BASELINES).get(spec.name), within="faultset.baselines")


def read_parameters(spec: BaselineSpec) -> dict[str, Any]:
    """Return the default parameters of a baseline's factory, without `seed` and values that JSON cannot hold."""
    try:
        parameters = inspect.signature(spec.factory).parameters
    except (TypeError, ValueError):
        return {}
    defaults = {name: item.default for name, item in parameters.items() if item.default is not item.empty}
    return {name: value for name, value in defaults.items() if name != "seed" and _is_plain(value)}


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def method_paths(spec: BaselineSpec) -> tuple[str, ...]:
    """Return the files and folders of a third-party baseline's code."""
    plugin = plugins(BASELINES).get(spec.name)
    return tuple(map(str, code_paths(spec.factory, plugin)))


def identify_scorers() -> dict[str, str]:
    """Return the code identity of every loadable third-party scorer by name."""
    installed = plugins(SCORERS)
    return {
        name: str(plugin_identity(installed[name]))
        for name in load_plugins(SCORERS)
        if name in installed and not installed[name].built_in
    }


def _run_git(folder: Path, *arguments: str) -> str:
    # without this check, an installed copy would report the commit of the surrounding project
    root = folder.parents[3]
    if not (root / ".git").exists():
        return ""
    try:
        result = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


@functools.cache
def library_versions() -> str:
    """Return the versions of libraries that can affect answers, as canonical JSON."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in (*_LIBRARIES, *_OPTIONAL):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name not in _OPTIONAL:
                versions[name] = "missing"
    return json.dumps(versions, sort_keys=True, separators=(",", ":"))


def find_changed_codes(path: Path, codes: Mapping[str, str]) -> tuple[str, ...]:
    """Return "the code of NAME" for each baseline whose code differs from the code in a results file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(parquet_path(path), columns=["baseline", "method_code"]).group_by(
            ["baseline", "method_code"]
        )
        pairs = table.aggregate([]).to_pylist()
    except (OSError, pa.ArrowException):
        return ()
    changed = {row["baseline"] for row in pairs if codes.get(row["baseline"], row["method_code"]) != row["method_code"]}
    return tuple(f"the code of {name}" for name in sorted(changed))


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
