"""Lengths of the phases of an episode in which a fault is repaired."""

from __future__ import annotations

from faultset.collector.platforms.hosts import Phases

MITIGATION_PHASES = Phases(warmup_s=8.0, baseline_s=20.0, fault_s=60.0, cooldown_s=1.0)
"""A short reference, and time for a slow fault to take effect; the repair begins as soon as clients have felt it."""
