"""Load applications from this package, plug-ins, folders and files."""

from __future__ import annotations

from faultset.collector.apps.catalogue import app_names, is_path, load_app, load_apps
from faultset.collector.spec.app import AppSpec

__all__ = ["AppSpec", "app_names", "is_path", "load_app", "load_apps"]
