"""Open-loop load against an application, and its results."""

from __future__ import annotations

from faultset.collector.load.process import main

__all__ = ["main"]
