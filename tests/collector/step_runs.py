"""Run a step without a service."""

from __future__ import annotations

from typing import Any, cast

from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.steps import Step


def values_after(step: Step, **values: Any) -> dict[str, Any]:
    request = RequestContext(values=values, trace=None)
    step.compile(cast(Any, None), "here")(request)
    return request.values
