"""Contents and arrival times of requests, drawn from a seed.

A mix may change over time: `A..B` changes linearly from mix A to mix B over `horizon_s`, and then stays at B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError, unknown_name

_SEPARATOR = ".."
_UNKNOWN_SUFFIX = "/v0/index.php"
"""Suffix of paths that do not exist."""
_PATIENCE_S = (0.0005, 0.01)
"""Shortest and longest time after which an impatient client gives up."""


@dataclass(frozen=True, kw_only=True)
class ScheduledRequest:
    """One request of a schedule."""

    gap: float
    """Time since the previous arrival, in units of the mean gap: exponential with mean one."""
    kind: int
    """Index of the endpoint in `Schedule.endpoints`."""
    method: str
    path: str
    parameters: dict[str, str]
    body: Literal["query", "form", "json"] = "query"
    patience_s: float | None = None
    """Seconds after which the client gives up; None for the usual timeout."""


class Schedule:
    """Requests of a mix with exponential gaps; the same seed gives the same requests at any rate.

    `mix` is a name, or two as `A..B`; the first changes into the second over `horizon_s`.
    """

    def __init__(self, app: AppSpec, mix: str, seed: int, *, horizon_s: float = 0.0):
        shares = [app.mix(name).shares for name in parse_mixes(mix, app)]
        names = list(dict.fromkeys(name for mix_shares in shares for name in mix_shares))
        self._kinds = [app.requests[name] for name in names]
        weights = [np.array([mix_shares.get(name, 0.0) for name in names]) for mix_shares in shares]
        self._first, self._last = (np.cumsum(weight / weight.sum()) for weight in (weights[0], weights[-1]))
        self._horizon_s = horizon_s if len(shares) > 1 else 0.0
        self._gaps, self._requests, self._errors = (
            np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)
        )
        self._error_shares = np.array([app.background_errors.unknown_paths, app.background_errors.impatient_clients])
        self.endpoints = tuple(kind.endpoint for kind in self._kinds)

    def next(self, elapsed_s: float = 0.0) -> ScheduledRequest:
        """Draw the next arrival; `elapsed_s` is the time since the load began."""
        bounds = self._last
        if self._horizon_s:
            progress = min(1.0, elapsed_s / self._horizon_s)
            bounds = (1 - progress) * self._first + progress * self._last
        point = self._requests.random() * bounds[-1]
        kind = int(np.searchsorted(bounds, point, side="right"))
        request = self._kinds[kind]
        parameters = request.draw(self._requests)
        path_parameters = {name: value for name, value in parameters.items() if f"{{{name}}}" in request.path}
        path = request.path.format_map(path_parameters) if path_parameters else request.path
        is_unknown, is_impatient = self._errors.random(2) < self._error_shares
        patience_s = float(self._errors.uniform(*_PATIENCE_S))
        return ScheduledRequest(
            gap=float(self._gaps.exponential()),
            kind=kind,
            method=request.method,
            path=f"{path.rstrip('/')}{_UNKNOWN_SUFFIX}" if is_unknown else path,
            patience_s=patience_s if is_impatient else None,
            parameters={name: value for name, value in parameters.items() if name not in path_parameters},
            body=request.body,
        )


def parse_mixes(mix: str, app: AppSpec) -> tuple[str, ...]:
    """Return the mix of this name, or both mixes of `A..B`; raise UsageError for an unknown one."""
    names = (mix,) if mix in app.mixes else tuple(mix.split(_SEPARATOR))
    if len(names) > 2:
        raise UsageError(f"a workload mix may change only once, as A..B, but is {mix!r}")
    for name in names:
        if name not in app.mixes:
            raise unknown_name("workload mix", name, app.mixes)
    return names
