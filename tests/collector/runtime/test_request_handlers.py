"""Operations of defective builds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from faultset.collector.runtime.builds import Defects
from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.http.status import RpcError
from faultset.collector.runtime.request_handlers import ServedOperation, with_defects


async def answer(request: RequestContext) -> Any:
    return 7


SERVED = ServedOperation(run=answer, log="", location="")


def run(wrong: Defects) -> Any:
    async def answered() -> Any:
        return await with_defects(SERVED, wrong, asyncio.Event()).run(RequestContext(values={}, trace=None))

    return asyncio.run(answered())


def test_a_good_build_is_left_alone() -> None:
    assert with_defects(SERVED, Defects(), asyncio.Event()) is SERVED


def test_a_failing_build_fails_and_a_slow_one_waits() -> None:
    with pytest.raises(RpcError, match="index out of range"):
        run(Defects(failing_share=1.0))
    begun = time.monotonic()
    assert run(Defects(waiting_share=1.0, wait_s=0.05)) == 7
    assert time.monotonic() - begun >= 0.05
