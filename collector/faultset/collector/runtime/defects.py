"""Operations of a defective build: some requests wait too long, or fail."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from faultset.collector.runtime.builds import Defects
from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.operations import ServedOperation


def with_defects(served: ServedOperation, wrong: Defects) -> ServedOperation:
    """Return an operation as a build with these defects carries it out; the same one when there are none."""
    if not wrong.waiting_share and not wrong.failing_share:
        return served

    async def run(request: RequestContext) -> Any:
        if random.random() < wrong.failing_share:
            raise RpcError(Code.INTERNAL, "runtime error: index out of range")
        if random.random() < wrong.waiting_share:
            await asyncio.sleep(wrong.wait_s)
        return await served.run(request)

    return replace(served, run=run)
