"""Kubernetes objects as platforms pass them."""

from __future__ import annotations

from typing import Any

from faultset.core.errors import PlatformError

Object = dict[str, Any]
"""A Kubernetes object as a plain dict: apiVersion, kind, metadata, spec, status, data."""


class ObjectNotFound(PlatformError):
    """No object of that kind and name exists."""
