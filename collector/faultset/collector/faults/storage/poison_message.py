"""A message that no consumer can read: all behind it wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import act_as_administrator, store_state
from faultset.collector.faults.targets import consumed_brokers, consuming_services
from faultset.collector.platforms.api.platform import Platform


def has_unreadable_message(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the topic has a message that cannot be read."""
    count = store_state(platform, target, "--stream", parameters["stream"]).get("unreadable")
    return f"{count} messages of {parameters['stream']} in {target} cannot be read" if count else None


@fault(
    "poison-message",
    system_level="Application",
    fault_type="Code Defect",
    targets=consumed_brokers,
    check=has_unreadable_message,
    also_accepted=consuming_services,
    needs=("exec", "runtime"),
)
def poison_message(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Publish a message whose body breaks off; its consumers try it again and again, and come to no other one."""
    services = platform.app.services
    topics = {one.topic for service in services.values() for one in service.consumers.values() if one.store == target}
    topic = str(rng.choice(sorted(topics)))
    stream = f"{services[target].database or target}.{topic}"
    act_as_administrator(
        platform, target, ["publish-unreadable", "--stream", stream], ["remove-unreadable", "--stream", stream]
    )
    return {"topic": topic, "stream": stream}
