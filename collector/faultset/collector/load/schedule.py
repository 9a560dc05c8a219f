"""When requests are sent and what they ask for: drawn from a seed, whatever the application answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from faultset.collector.spec.app import AppSpec


@dataclass(frozen=True, kw_only=True)
class ScheduledRequest:
    """One request of a schedule.

    Attributes
    ----------
    gap:
        Time since the arrival before it, in mean gaps: exponential with mean one.
    kind:
        Index of the endpoint in `Schedule.endpoints`.
    """

    gap: float
    kind: int
    method: str
    path: str
    parameters: dict[str, str]
    body: Literal["query", "form", "json"] = "query"


class Schedule:
    """Poisson arrivals of a mix of requests; the same seed gives the same arrivals at any rate."""

    def __init__(self, app: AppSpec, mix: str, seed: int):
        shares = app.mix(mix).shares
        self._kinds = [app.requests[name] for name in shares]
        self._bounds = np.cumsum(list(shares.values()))
        self._gaps, self._requests = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
        self.endpoints = tuple(kind.endpoint for kind in self._kinds)

    def next(self) -> ScheduledRequest:
        """Draw the next arrival."""
        point = self._requests.random() * self._bounds[-1]
        kind = int(np.searchsorted(self._bounds, point, side="right"))
        request = self._kinds[kind]
        parameters = request.draw(self._requests)
        in_path = {name: value for name, value in parameters.items() if f"{{{name}}}" in request.path}
        return ScheduledRequest(
            gap=float(self._gaps.exponential()),
            kind=kind,
            method=request.method,
            path=request.path.format_map(in_path) if in_path else request.path,
            parameters={name: value for name, value in parameters.items() if name not in in_path},
            body=request.body,
        )
