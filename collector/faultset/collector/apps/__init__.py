"""Load applications by name, folder or file.

The entry-point group `faultset.apps` lists installed applications: packages with an `app.yaml` and optionally
`operations.py` and `persona.py`, or paths of YAML files. Applications that are not installed are loaded by the path of
such a folder or file.
"""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.app import AppSpec
from faultset.core.documents import read_yaml_text
from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins

GROUP = "faultset.apps"
_APP_FILE = "app.yaml"


def app_names() -> tuple[str, ...]:
    """Return the names of the installed applications."""
    return tuple(plugins(GROUP))


def load_apps() -> dict[str, AppSpec]:
    """Return all installed applications; warn about unreadable ones."""
    return load_plugins(GROUP, _read_plugin)


def load_app(name: str) -> AppSpec:
    """Return one application, by its name or by the path of its folder or its YAML file.

    Raises
    ------
    UsageError
        The application does not exist, or its spec is unreadable or invalid.
    """
    if is_path(name):
        return _read_path(Path(name))
    return load_plugin(GROUP, name, kind="app", accept=_read_plugin)


def is_path(name: str) -> bool:
    """Return whether a name is the path of a folder or a file."""
    return "/" in name or name in (".", "..") or name.endswith((".yaml", ".yml"))


def _read_path(path: Path) -> AppSpec:
    file, code = path, None
    if os.path.isdir(path):  # also False for impossible file names
        file, code = path / _APP_FILE, str(path.resolve()) if _has_code(path) else None
    return read_app(read_yaml_text(file, "app file"), str(file), code=code, workload_of=_load_workload)


def _read_plugin(name: str, plugin: object) -> AppSpec:
    file: object = plugin
    code = None
    if isinstance(plugin, ModuleType) and hasattr(plugin, "__path__"):
        file, code = files(plugin) / _APP_FILE, plugin.__name__ if _has_code(files(plugin)) else None
    if not isinstance(file, Traversable) or not file.is_file():
        raise UsageError(f"it must be a package with an {_APP_FILE}, or the path of a YAML file; got {plugin!r}")
    app = read_app(file.read_text(encoding="utf-8"), f"app {name}", code=code, workload_of=_load_workload)
    if app.name != name:
        raise UsageError(
            f'the name in {file} must be "{name}", the name of the app\'s entry point, but is "{app.name}"'
        )
    return app


def _has_code(folder: Traversable) -> bool:
    return any((folder / name).is_file() for name in ("operations.py", "persona.py"))


def _load_workload(name: str) -> dict[str, Any]:
    """Return the requests and mixes of an installed application."""
    app = load_app(name).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {key: app[key] for key in ("requests", "mixes", "default_mix")}
