"""A queue that fills faster than one of its consumers empties it."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.flags.settings import FLAG_CHECK, service_of_flag, turn_on
from faultset.collector.faults.registry import fault
from faultset.collector.platforms.api.platform import Platform

FLAG = "kafkaQueueProblems"


@fault(
    "kafka-queue-problems",
    system_level="Application",
    fault_type="Operation Error",
    targets=service_of_flag(FLAG),
    check=FLAG_CHECK,
)
def kafka_queue_problems(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Publish a hundred messages more for each order, and let fraud-detection sleep at each."""
    return turn_on(platform, FLAG, "on")
