"""A step that the generic steps cannot express: a price with a group discount."""

from __future__ import annotations

from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.steps import Step, getter


class Price(Step):
    """Price of some tickets, reduced by the share `discount` if there are at least `group`."""

    keyword = "price"
    single: float
    count: Any
    group: int
    discount: float
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the price."""
        count_of = getter(self.count)

        def handle(request: RequestContext) -> None:
            count = int(count_of(request.values))
            factor = 1.0 - self.discount if count >= self.group else 1.0
            request.values[self.save] = round(self.single * count * factor, 2)

        return handle


STEPS = (Price,)
