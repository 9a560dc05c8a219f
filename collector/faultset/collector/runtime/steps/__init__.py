"""Steps that every application can use: each is its fields in a spec, and the function that it compiles to."""

from __future__ import annotations

from faultset.collector.runtime.steps.basic import Call, Require, Respond, Work
from faultset.collector.runtime.steps.caching import CachedDocuments
from faultset.collector.runtime.steps.step import Step

GENERIC_STEPS: tuple[type[Step], ...] = (Require, Call, Work, CachedDocuments, Respond)

__all__ = ["GENERIC_STEPS", "CachedDocuments", "Call", "Require", "Respond", "Step", "Work"]
