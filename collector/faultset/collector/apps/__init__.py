"""Applications as data: specs, and the Kubernetes manifests made from them."""

from __future__ import annotations

from importlib.resources import files

from faultset.collector.apps.spec import AppSpec, parse, unknown
from faultset.datasets.errors import UsageError


def app_names() -> tuple[str, ...]:
    """Return the names of the applications that come with the product."""
    folder = files(__name__)
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_app(name: str) -> AppSpec:
    """Return one application; raise UsageError with the nearest name for an unknown one."""
    if name not in app_names():
        raise UsageError(unknown("app", name, app_names(), "faultset"))
    resource = files(__name__) / f"{name}.yaml"
    return parse(resource.read_text(encoding="utf-8"), f"app {name}")


__all__ = ["AppSpec", "app_names", "load_app"]
