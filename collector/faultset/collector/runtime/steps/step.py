"""The contract of a step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.spec.steps import StepModel


class Step(StepModel):
    """One kind of step: a model whose fields a spec gives, which compiles to a function.

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
        """Return the function that carries the step out, once for each request.

        It is called once, when the service starts.

        Parameters
        ----------
        service
            What the steps of the service can use.
        location
            Place in the modelled source that log lines of the operation name.
        """
        raise NotImplementedError(f"step {self.keyword} does not compile")


def compile_steps(
    steps: Iterable[StepModel], service: ServiceContext, location: str
) -> Callable[[RequestContext], Awaitable[None]]:
    """Return the function that runs steps in sequence; see `Step.compile`."""
    handlers = [step.compile(service, location) for step in steps if isinstance(step, Step)]

    async def run(request: RequestContext) -> None:
        for handle in handlers:
            waiting = handle(request)
            if waiting is not None:
                await waiting

    return run
