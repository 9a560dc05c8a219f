"""Check the shop and its step `price`."""

from __future__ import annotations

from typing import Any, cast

import pytest
from faultset_ticket_shop.operations import Price

from faultset.collector.runtime.context import RequestContext
from faultset.collector.testing import check_app


def test_the_shop_is_a_valid_application() -> None:
    app = check_app("ticket-shop")
    assert app.services["web"].calls == ("events", "pricing")


@pytest.mark.parametrize(("count", "price"), [("9", 220.5), ("10", 208.25)])
def test_groups_pay_less(count: str, price: float) -> None:
    step = Price(single=24.5, count="$count", group=10, discount=0.15, save="price")
    request = RequestContext(values={"count": count}, trace=cast(Any, None))
    step.compile(cast(Any, None), "here")(request)
    assert request.values["price"] == price
