"""The memory use of a service's runtime."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faultset.collector.spec.steps import FrozenModel

Language = Literal["go", "jvm", "nodejs", "python"]


class HeapUse(FrozenModel):
    """The heap of a service: live data, and garbage that grows with the requests until it is collected.

    Attributes
    ----------
    live_mib
        Live data once the service is warm.
    garbage_mib
        Amount of garbage that triggers a collection.
    request_kib
        Memory that each request allocates.
    """

    live_mib: float = Field(ge=0.0, le=1024.0, allow_inf_nan=False)
    garbage_mib: float = Field(ge=0.0, le=1024.0, allow_inf_nan=False)
    request_kib: float = Field(ge=0.0, le=1024.0, allow_inf_nan=False)
