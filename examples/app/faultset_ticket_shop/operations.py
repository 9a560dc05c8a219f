"""The step that the generic ones cannot say: a price with a discount for groups."""

from __future__ import annotations

from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.steps import Step


class Price(Step):
    """Price of a number of tickets, `discount` less from `group` tickets on."""

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
