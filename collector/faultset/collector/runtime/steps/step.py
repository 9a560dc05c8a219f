"""The contract of a step."""

from __future__ import annotations

from faultset.collector.runtime.context import ServiceContext, StepHandler
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
