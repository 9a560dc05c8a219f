"""The shipped check of faults tells which promise is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faultset.collector.faults.deployments import list_pods
from faultset.collector.faults.registry import FaultSpec, faults
from faultset.collector.testing import check_fault


def break_(spec: FaultSpec, **changes: Any) -> FaultSpec:
    return replace(spec, targets=lambda app: ("geo",), **changes)


def forgetful(platform, target, rng):
    """Draw a port and say nothing of it."""
    platform.patch(
        "Service", target, {"spec": {"ports": [{"port": 8083, "targetPort": int(rng.integers(9000, 9999))}]}}
    )
    return {}


def moody(platform, target, rng):
    """Draw from elsewhere."""
    import random

    platform.patch("Service", target, {"spec": {"selector": {"app": "other"}}})
    return {"port": random.random()}


def steady(platform, target, rng):
    """Draw nothing."""
    platform.patch("Service", target, {"spec": {"selector": {"app": "other"}}})
    return {}


def killing(platform, target, rng):
    """Kill without having declared it."""
    platform.kill(list_pods(platform, target)[0]["metadata"]["name"])
    return {}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"inject": forgetful}, "draws random numbers, but its parameters are {} for every seed"),
        ({"inject": moody}, "has different parameters for one seed"),
        ({"inject": killing}, "uses kill without declaring it in needs"),
        ({"inject": lambda platform, target, rng: {}}, "does not change the platform"),
        ({"inject": lambda platform, target, rng: 1 / 0}, r"fails: ZeroDivisionError: .*test_fault.py, line \d+"),
        ({"check": lambda *given: None}, "does not report the fault"),
        ({"check": lambda *given: "always"}, "reports the fault on a healthy platform: always"),
        ({"check": lambda *given: {}["pod"]}, r"the check of .* fails: KeyError: 'pod' \(.*test_fault.py"),
        ({"inject": steady, "intensity": "weak or strong"}, "declares an intensity but draws no random number"),
        ({"gray": True}, "is declared gray, but changes Service geo"),
        ({"observe": lambda *given: {}["pod"]}, r"the observe of .* fails: KeyError: 'pod'"),
    ],
)
def test_a_fault_that_breaks_a_promise_is_told(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_fault(break_(faults()["target-port"], **changes))
