"""Applications as data: specs, and the Kubernetes manifests made from them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from faultset.collector.spec.app import AppSpec, unknown
from faultset.collector.spec.files import parse
from faultset.core.errors import UsageError


def app_names() -> tuple[str, ...]:
    """Return the names of the applications that come with the product."""
    folder = files(__name__)
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_app(name: str) -> AppSpec:
    """Return one application, by its name or the path of its YAML file.

    Raises
    ------
    UsageError
        Nothing has that name (names the nearest), or the file cannot be read or is wrong.
    """
    if is_file(name):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"an app file is wanted at {name}, but it cannot be read ({error.strerror})") from None
        return parse(text, name, _workload)
    if name not in app_names():
        raise UsageError(unknown("app", name, app_names(), "faultset"))
    resource = files(__name__) / f"{name}.yaml"
    return parse(resource.read_text(encoding="utf-8"), f"app {name}", _workload)


def _workload(name: str) -> dict[str, Any]:
    """Return requests and mixes of an application that comes with the product."""
    app = load_app(name).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {key: app[key] for key in ("requests", "mixes", "default_mix")}


def is_file(name: str) -> bool:
    """Say whether an application is named by a file."""
    return name.endswith((".yaml", ".yml"))


__all__ = ["AppSpec", "app_names", "is_file", "load_app"]
