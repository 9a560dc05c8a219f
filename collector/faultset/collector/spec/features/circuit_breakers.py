"""Circuit breakers: when a service stops calling another one that fails, and when it tries again."""

from __future__ import annotations

from pydantic import Field

from faultset.collector.spec.steps import FrozenModel


class CircuitBreaker(FrozenModel):
    """Between a service and one that it calls: closed, it lets calls through; open, they fail at once.

    Failures are calls that did not arrive, got no answer in time, or failed with an internal or unknown error. What
    the callee refuses for good reasons, such as a wrong argument, counts as a success.

    Attributes
    ----------
    failures
        How many failures in a row open it.
    open_s
        After how many seconds the open one lets some calls through, as a trial (half-open).
    trials
        How many calls may be under way as a trial; when so many have succeeded it closes, and the first that fails
        opens it again.
    """

    failures: int = Field(default=5, ge=1, le=10_000)
    open_s: float = Field(default=30.0, gt=0.0, le=86_400.0, allow_inf_nan=False)
    trials: int = Field(default=1, ge=1, le=1000)
