"""The base class of steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.spec.steps import StepModel


class Step(StepModel):
    """One kind of step: a model of its fields in a spec, which compiles to a function.

    Examples
    --------
    >>> class Constant(Step):
    ...     keyword = "constant"
    ...     value: int
    ...     save: str
    ...
    ...     def compile(self, service, location):
    ...         def handle(request):
    ...             request.values[self.save] = self.value
    ...         return handle
    """

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return the function that runs the step for a request.

        `compile` is called once, when the service starts.

        Parameters
        ----------
        service
            State that the steps of the service share.
        location
            Location in the modelled source code, shown in log lines of the operation.
        """
        raise NotImplementedError(f"step {self.keyword} does not implement compile")


def compile_steps(
    steps: Iterable[StepModel], service: ServiceContext, location: str
) -> Callable[[RequestContext], Awaitable[None]]:
    """Return the function that runs steps in sequence; see `Step.compile`."""
    handlers = [step.compile(service, location) for step in steps if isinstance(step, Step)]

    async def run(request: RequestContext) -> None:
        for handle in handlers:
            awaitable = handle(request)
            if awaitable is not None:
                await awaitable

    return run
