"""Circuit breakers: when they open, what they let through, and what shows it."""

from __future__ import annotations

from faultset.collector.runtime.http.circuit_breakers import Breaker, Breakers
from faultset.collector.runtime.http.status import Code
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.spec.features.circuit_breakers import CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def call(breaker: Breaker, code: Code) -> bool:
    """Make a call that ends with a code; say whether it was let through."""
    if not breaker.admits():
        return False
    breaker.ended(code)
    return True


def test_it_opens_after_five_failures_in_a_row_and_tries_again_after_thirty_seconds() -> None:
    clock, states = Clock(), []
    breaker = Breaker(CircuitBreaker(), states.append, clock)
    for code in [Code.UNAVAILABLE] * 4 + [Code.OK] + [Code.INTERNAL] * 4:
        assert call(breaker, code)
    assert states == []
    assert call(breaker, Code.DEADLINE_EXCEEDED)
    assert states == ["open"]
    clock.now += 29.9
    assert not call(breaker, Code.OK)
    clock.now += 0.2
    assert call(breaker, Code.OK)
    assert states == ["open", "half-open", "closed"]
    assert call(breaker, Code.UNAVAILABLE)
    assert breaker.state == "closed"


def test_a_trial_that_fails_opens_it_again() -> None:
    clock, states = Clock(), []
    breaker = Breaker(CircuitBreaker(failures=1, open_s=1.0, trials=2), states.append, clock)
    assert call(breaker, Code.UNKNOWN)
    clock.now += 1.0
    assert call(breaker, Code.OK)
    assert breaker.state == "half-open"
    assert call(breaker, Code.UNKNOWN)
    clock.now += 0.5
    assert not call(breaker, Code.OK)
    assert states == ["open", "half-open", "open"]


def test_no_more_trials_are_under_way_than_it_has() -> None:
    clock = Clock()
    breaker = Breaker(CircuitBreaker(failures=1, open_s=1.0, trials=2), clock=clock)
    call(breaker, Code.UNAVAILABLE)
    clock.now += 1.0
    assert [breaker.admits() for _ in range(3)] == [True, True, False]
    breaker.ended(Code.CANCELED)
    assert breaker.admits()
    breaker.ended(Code.OK)
    assert breaker.state == "half-open"
    breaker.ended(Code.OK)
    assert breaker.state == "closed"


def test_refusals_for_good_reasons_and_late_ends_do_not_count() -> None:
    breaker = Breaker(CircuitBreaker(failures=1))
    for code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.CANCELED):
        assert call(breaker, code)
    assert breaker.admits()
    assert breaker.admits()
    breaker.ended(Code.UNAVAILABLE)
    breaker.ended(Code.OK)
    assert breaker.state == "open"


def test_metrics_show_its_state_and_what_it_rejected() -> None:
    metrics, said = Metrics(), []
    breakers = Breakers({"stock": CircuitBreaker(failures=1)}, metrics, lambda *given: said.append(given))
    assert breakers.admits("other")
    breakers.ended("other", Code.UNAVAILABLE)
    assert b'circuit_breaker_state{server_address="stock"} 0.0' in metrics.exposition()
    assert breakers.admits("stock")
    breakers.ended("stock", Code.UNAVAILABLE)
    assert not breakers.admits("stock")
    text = metrics.exposition()
    assert b'circuit_breaker_state{server_address="stock"} 2.0' in text
    assert b'circuit_breaker_rejected_calls_total{server_address="stock"} 1.0' in text
    assert said == [("stock", "open")]
