"""Circuit breakers at work: a state for each callee of a process, and what of it is seen from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal

from faultset.collector.runtime.http.status import Code
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.spec.features.behaviour import CircuitBreaker

State = Literal["closed", "half-open", "open"]
FAILURES = frozenset({Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNAVAILABLE})
"""Codes that speak against a callee."""
_LEVELS: dict[State, int] = {"closed": 0, "half-open": 1, "open": 2}


class Breaker:
    """The circuit breaker of one callee.

    Parameters
    ----------
    settings
        When it opens and closes.
    changed
        Called with the new state.
    clock
        Returns seconds.
    """

    def __init__(
        self,
        settings: CircuitBreaker,
        changed: Callable[[State], None] = lambda state: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.state: State = "closed"
        self._settings, self._changed, self._clock = settings, changed, clock
        self._failures = self._successes = self._under_way = 0
        self._opened_s = 0.0

    def admits(self) -> bool:
        """Say whether a call may be made; one that is must be followed by `ended`."""
        if self.state == "open" and self._clock() - self._opened_s >= self._settings.open_s:
            self._successes = self._under_way = 0
            self._become("half-open")
        if self.state == "open" or (self.state == "half-open" and self._under_way >= self._settings.trials):
            return False
        self._under_way += 1
        return True

    def ended(self, code: Code) -> None:
        """Take in how a call ended; one that its own caller gave up says nothing."""
        self._under_way = max(0, self._under_way - 1)
        if self.state == "open" or code == Code.CANCELED:
            return  # the call began before it opened, or is nobody's fault
        if code in FAILURES:
            self._failures += 1
            if self.state == "half-open" or self._failures >= self._settings.failures:
                self._opened_s = self._clock()
                self._become("open")
            return
        self._failures = 0
        if self.state == "half-open":
            self._successes += 1
            if self._successes >= self._settings.trials:
                self._become("closed")

    def _become(self, state: State) -> None:
        self.state = state
        if state != "half-open":
            self._failures = 0
        self._changed(state)


class Breakers:
    """The circuit breakers of a process, with the metrics that show them.

    Parameters
    ----------
    settings
        By callee; calls of others always go through.
    report
        Called with a callee and the new state of its breaker.
    """

    def __init__(self, settings: Mapping[str, CircuitBreaker], metrics: Metrics, report: Callable[[str, State], None]):
        self._found: dict[str, Breaker] = {}
        self._metrics = metrics
        for callee, setting in settings.items():
            self._found[callee] = Breaker(setting, lambda state, callee=callee: self._note(callee, state, report))
            self._show(callee, "closed")

    def admits(self, callee: str) -> bool:
        """Say whether a service may be called now; see `Breaker.admits`."""
        found = self._found.get(callee)
        if found is None or found.admits():
            return True
        text = "Calls that an open circuit breaker did not let through."
        self._metrics.counter("circuit_breaker_rejected_calls", ("server_address",), text).labels(callee).inc()
        return False

    def ended(self, callee: str, code: Code) -> None:
        """Take in how a call of a service ended."""
        found = self._found.get(callee)
        if found is not None:
            found.ended(code)

    def _note(self, callee: str, state: State, report: Callable[[str, State], None]) -> None:
        self._show(callee, state)
        report(callee, state)

    def _show(self, callee: str, state: State) -> None:
        text = "State of a circuit breaker: 0 closed, 1 half-open, 2 open."
        self._metrics.gauge("circuit_breaker_state", ("server_address",), text).labels(callee).set(_LEVELS[state])
