"""What the steps that use a store have in common: a span, and what becomes of a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import StoreError

T = TypeVar("T")
OnError = Literal["fail", "ignore", "panic"]


class StoreStep(Step):
    """The fields that these steps share."""

    store: str
    """The store, one of the service's `stores`."""
    span: str | None = None
    """Name of the span around the request to the store; none when left out."""
    error_log: str | None = None
    """Line that is logged when the store fails, with `{error}`; none when left out."""
    error_message: str | None = None
    """Reason with which the request fails then, with `{error}`; the store's when left out."""
    on_error: OnError = "fail"
    """Whether a failing store fails the request, does nothing more, or ends the process (`panic`)."""

    async def use_store(
        self,
        service: ServiceContext,
        location: str,
        request: RequestContext,
        use: Callable[[], Awaitable[T]],
        instead: T,
    ) -> T:
        """Return what the store answers, or something else when its failure is ignored; raise RpcError.

        Parameters
        ----------
        use
            Asks the store.
        """
        try:
            with service.store_span(request, self.store, self.span):
                return await use()
        except StoreError as error:
            text = (self.error_log or "{error}").replace("{error}", str(error))
            if self.on_error == "panic":
                service.log.panic(location, text)
            if self.error_log is not None:
                service.log.error(location, text)
            if self.on_error == "ignore":
                return instead
            message = (self.error_message or "{error}").replace("{error}", str(error))
            raise RpcError(Code.INTERNAL, message) from None


def flattened(value: Any) -> list[Any]:
    """Return the elements of a list and of the lists inside it, each once, without those that are absent.

    >>> flattened(["1", ["2", "1"], None])
    ['1', '2']
    """
    found: dict[Any, None] = {}
    for one in value if isinstance(value, (list, tuple)) else [value]:
        for element in flattened(one) if isinstance(one, (list, tuple)) else [one]:
            if element is not None:
                found[element] = None
    return list(found)
