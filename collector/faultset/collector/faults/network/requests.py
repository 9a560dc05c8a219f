"""Which requests a fault of single requests concerns."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.targets import callers_of
from faultset.collector.platforms.api.courses import Course
from faultset.collector.spec.app import AppSpec


def draw_requests(app: AppSpec, target: str, rng: np.random.Generator, course: Course | None = None) -> dict[str, Any]:
    """Draw the share of the requests, their caller, at times their operation, and a course if none is given."""
    caller = str(rng.choice(callers_of(app, target)))
    # an operation that this caller does not ask for, or asks for in its code after errors only, would show nothing
    asked = {call.operation for call in app.services[caller].operations_called() if call.service == target}
    operations = sorted(name for name in asked if "{" not in name)
    path = str(rng.choice(operations)) if operations and rng.random() < 0.5 else ""
    drawn: dict[str, Any] = {"share": round(float(rng.uniform(0.3, 0.8)), 2), "caller": caller, "path": path}
    if course is not None:
        return drawn | course.as_parameters()
    kind = str(rng.choice(["sudden", "gradual", "intermittent"], p=[0.5, 0.25, 0.25]))
    if kind == "gradual":
        drawn["rise_s"] = round(float(rng.uniform(10, 40)), 1)
    elif kind == "intermittent":
        drawn |= {"on_s": round(float(rng.uniform(3, 8)), 1), "off_s": round(float(rng.uniform(2, 6)), 1)}
    return drawn
