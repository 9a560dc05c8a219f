"""All programs of the Astronomy Shop at once: orders, messages about them, and what its flags do."""

from __future__ import annotations

import json
import re

import pytest
from span_receiver import ReceivedSpan, Receiver
from stage import Process, Stage

from faultset.collector.apps.astronomy.operations import ADVERTISED

ORDER = {"userId": "shopper-1", "userCurrency": "USD", "email": "shopper-1@example.com"}


@pytest.fixture
def running(shop: Stage) -> dict[str, Process]:
    """Every program, listening."""
    return shop.start_all()


def checkout(shop: Stage) -> tuple[int, str]:
    status, _ = shop.ask("/api/cart", "POST", 20.0, userId="shopper-1", productId="L9ECAV7KIM", quantity="2")
    assert status == 200
    return shop.ask("/api/checkout", "POST", 20.0, **ORDER)


def trace_of(shop: Stage, receiver: Receiver, name: str, count: int) -> list[ReceivedSpan]:
    """Return the spans of the first trace that has one of a name, once there are so many."""

    def found() -> list[ReceivedSpan]:
        traces = [span.trace for span in receiver.spans if span.name == name]
        return [span for span in receiver.spans if traces and span.trace == traces[0]]

    shop.wait(lambda: len(found()) >= count, f"{count} spans with {name}")
    return found()


def test_an_order_is_paid_shipped_mailed_and_told_to_both_consumers(
    shop: Stage, running: dict[str, Process], receiver: Receiver
) -> None:
    status, body = checkout(shop)
    assert status == 200
    order = json.loads(body)["order"]
    assert order["items"] == [{"product_id": "L9ECAV7KIM", "quantity": 2, "cost": 21.95}]
    assert json.loads(shop.ask("/api/cart", "GET", 20.0, sessionId="shopper-1")[1])["items"] == []
    shop.wait(lambda: shop.redis("postgresql", "HLEN", "otel.orders") == "1", "accounting writes the order")
    shop.wait(lambda: order["order_id"] in running["fraud-detection"].log, "fraud-detection reads the order")

    spans = trace_of(shop, receiver, "oteldemo.CheckoutService/PlaceOrder", 36)
    names = {(span.service, span.name) for span in spans}
    assert {
        ("frontend-proxy", "ingress"),
        ("checkout", "prepareOrderItemsAndShippingQuoteFromCart"),
        ("payment", "charge"),
        ("quote", "calculate-quote"),
        ("email", "send_email"),
        ("cart", "HMSET"),
        ("checkout", "orders publish"),
        ("accounting", "order-consumed"),
        ("accounting", "INSERT otel.order"),
    } <= names
    (published,) = [span for span in spans if span.name == "orders publish"]
    assert published.kind == "producer"
    (consumed,) = [span for span in spans if span.name == "order-consumed"]
    assert (consumed.kind, consumed.parent) == ("consumer", published.span)
    (linked,) = trace_of(shop, receiver, "orders process", 1)
    assert linked.links == (f"{published.trace}-{published.span}",)
    assert linked.trace != published.trace


def test_flags_are_read_again_and_reach_the_services_through_flagd(shop: Stage, running: dict[str, Process]) -> None:
    assert checkout(shop)[0] == 200
    shop.set_flag("paymentFailure", "100%")
    shop.set_flag("productCatalogFailure", "on")
    shop.set_flag("kafkaQueueProblems", "on")
    shop.wait(lambda: checkout(shop)[0] == 500, "payment hears of its flag")
    shop.wait(lambda: shop.ask("/api/products/OLJCESPC7Z")[0] == 500, "product-catalog hears of its flag")
    status, body = checkout(shop)
    assert status == 500
    assert "could not charge the card: Payment request failed. Invalid token." in body
    assert '"level": 40' in running["payment"].log
    assert shop.ask("/api/products/66VCHSJNUP")[0] == 200
    assert "the flag file has changed" in running["flagd"].log
    for name, process in running.items():
        assert not re.search("paymentFailure|productCatalogFailure", process.log), name

    shop.set_flag("paymentFailure", "off")
    shop.wait(lambda: checkout(shop)[0] == 200, "payment hears of its flag again")

    def lag() -> float:
        match = re.search(r"^kafka_consumer_group_lag\{.*\} (\S+)$", shop.metrics("fraud-detection"), re.MULTILINE)
        return float(match[1]) if match else 0.0

    shop.wait(lambda: checkout(shop)[0] == 200 and lag() > 50, "messages pile up before fraud-detection")
    assert not re.search("kafkaQueueProblems|overload", running["checkout"].log)
    assert "sleeping 1 second" in running["fraud-detection"].log


def test_payment_at_a_bad_address_fails_orders_while_payment_is_well(shop: Stage, running: dict[str, Process]) -> None:
    shop.set_flag("paymentUnreachable", "on")
    shop.wait(lambda: checkout(shop)[0] == 500, "checkout hears of its flag")
    charged = running["payment"].log.count("Charge request received")
    status, body = checkout(shop)
    assert status == 500
    assert "lookup badAddress: no such host" in body
    assert running["payment"].log.count("Charge request received") == charged
    assert "failed to charge card: could not charge the card: rpc error: code = Unavailable" in running["checkout"].log


def test_the_span_of_a_callee_that_failed_is_an_error_whatever_the_code(
    shop: Stage, running: dict[str, Process], receiver: Receiver
) -> None:
    shop.set_flag("paymentFailure", "100%")
    shop.wait(lambda: checkout(shop)[0] == 500, "payment hears of its flag")

    def failed(kind: str) -> dict[tuple[str, str], int | None]:
        mine = [span for span in receiver.spans if span.error and span.kind == kind]
        return {(span.service, span.name): span.attributes.get("rpc.grpc.status_code") for span in mine}

    def endpoints() -> set[str]:
        return {s.service for s in receiver.spans if s.error and s.attributes.get("http.status_code") == 500}

    payment = ("payment", "oteldemo.PaymentService/Charge")
    shop.wait(lambda: "frontend-proxy" in endpoints(), "the span of a failed endpoint")
    callees = {payment, ("frontend", "POST /api/checkout")}
    shop.wait(lambda: callees <= {*failed("server")}, "spans of failed callees")
    assert failed("server")[payment] == 2, "it ends as Unknown, since the program throws an Error"
    shop.set_flag("paymentFailure", "off")
    shop.wait(lambda: checkout(shop)[0] == 200, "payment hears of its flag again")

    shop.set_flag("cartFailure", "on")
    cart = ("cart", "POST /oteldemo.CartService/EmptyCart")
    shop.wait(lambda: checkout(shop)[0] == 200 and cart in failed("server"), "cart hears of its flag")
    assert failed("server")[cart] == 9, "it ends as FailedPrecondition"


def test_the_catalogue_is_read_again_when_its_file_has_changed(shop: Stage, running: dict[str, Process]) -> None:
    status, body = shop.ask("/api/products")
    assert status == 200
    names = {one["id"]: one["name"] for one in json.loads(body)}
    assert names == {one["id"]: one["name"] for one in ADVERTISED}
    (catalogue,) = (shop.folder / "files" / "product-catalog").rglob("products.json")
    catalogue.rename(catalogue.with_suffix(".old"))
    assert shop.ask("/api/products") == (200, "[]")
    assert shop.ask("/api/products/66VCHSJNUP")[0] == 500
    catalogue.with_suffix(".old").rename(catalogue)
    assert shop.ask("/api/products/66VCHSJNUP")[0] == 200
