"""Which requests a fault of single requests concerns."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.targets import callers_of
from faultset.collector.spec.app import AppSpec


def draw_requests(app: AppSpec, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Draw the share of the requests, their caller, at times their operation, and whether it rises or comes back."""
    operations = sorted(name for name in app.services[target].operations if "{" not in name)
    caller = str(rng.choice(callers_of(app, target)))
    path = str(rng.choice(operations)) if operations and rng.random() < 0.5 else ""
    drawn: dict[str, Any] = {"share": round(float(rng.uniform(0.3, 0.8)), 2), "caller": caller, "path": path}
    course = str(rng.choice(["sudden", "gradual", "intermittent"], p=[0.5, 0.25, 0.25]))
    if course == "gradual":
        drawn["rise_s"] = round(float(rng.uniform(10, 40)), 1)
    elif course == "intermittent":
        drawn |= {"on_s": round(float(rng.uniform(3, 8)), 1), "off_s": round(float(rng.uniform(2, 6)), 1)}
    return drawn
