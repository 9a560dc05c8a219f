"""Steps that read feature flags, and the one that decides by chance."""

from __future__ import annotations

import random
from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.steps.step import Step


class ReadFlag(Step):
    """Read the value of a feature flag."""

    keyword = "flag"
    name: str
    """Name of the flag, one of the application's."""
    save: str
    """Name under which the value is kept for later steps."""

    def flags_read(self) -> tuple[str, ...]:
        """Return the flag."""
        return (self.name,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that reads."""

        def handle(request: RequestContext) -> None:
            request.values[self.save] = service.flags.value(self.name)

        return handle


class ReadFlags(Step):
    """Read the values of all feature flags, as their provider answers others."""

    keyword = "all_flags"
    save: str
    """Name under which a mapping of values by name is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that reads."""

        def handle(request: RequestContext) -> None:
            request.values[self.save] = service.flags.all()

        return handle


class Chance(Step):
    """Decide by chance."""

    keyword = "chance"
    share: Any
    """Probability of true, a number from 0 to 1; anything that is no number counts as 0."""
    save: str
    """Name under which true or false is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that decides."""
        share_of = getter(self.share)

        def handle(request: RequestContext) -> None:
            request.values[self.save] = random.random() < number(share_of(request.values))

        return handle
