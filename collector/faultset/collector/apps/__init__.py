"""Applications: those that come with the product, those of other distributions, and those of a folder or a file."""

from __future__ import annotations

from faultset.collector.apps.catalogue import app_names, is_path, load_app, load_apps
from faultset.collector.spec.app import AppSpec

__all__ = ["AppSpec", "app_names", "is_path", "load_app", "load_apps"]
