"""Background errors, which also occur in a healthy system: their rates in one episode."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from faultset.collector.spec.steps import FrozenModel

Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
PerMinute = Annotated[float, Field(ge=0.0, le=60.0, allow_inf_nan=False)]


class BackgroundErrors(FrozenModel):
    """Rates of errors of the application and its clients that occur without a fault, before and after the onset.

    Attributes
    ----------
    unknown_paths
        Share of client requests that go to a path that does not exist; the response is 404.
    impatient_clients
        Share of client requests that clients abandon after a few milliseconds.
    hasty_calls
        Share of the calls between services that time out immediately and are retried.
    failed_uploads
        Failed uploads of usage statistics per minute in each service, logged with a stack trace.
    rebalances
        Times per minute that each consumer leaves its group and joins it again.
    slow_phases
        Phases per minute in which a service is a few milliseconds slower for some seconds.
    unhealthy_answers
        Share of the readiness probes that services answer with 503.
    """

    unknown_paths: Share = 0.0
    impatient_clients: Share = 0.0
    hasty_calls: Share = 0.0
    failed_uploads: PerMinute = 0.0
    rebalances: PerMinute = 0.0
    slow_phases: PerMinute = 0.0
    unhealthy_answers: Share = 0.0
