"""The steps that only the Astronomy Shop needs."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import uuid
from typing import Any

from faultset.collector.apps.astronomy.products import ADVERTISED, RATES
from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.client import UnknownHostError
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps import Step

_CONNECT_RETRIES, _RETRY_PAUSE_S = 30, 0.05
_BUSY_THREADS, _BUSY_S = 4, 1.0
_GARBAGE_OBJECTS, _COLLECTIONS = 300_000, 10
_MAX_RECOMMENDATIONS = 5


class ListProducts(Step):
    """Return all products of a catalogue and their number."""

    keyword = "products"
    catalogue: Any
    save: str
    save_count: str

    def names_saved(self) -> tuple[str, ...]:
        """Return the names of the products and of their number."""
        return (self.save, self.save_count)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the products and their number."""
        catalogue_of = getter(self.catalogue)

        def handle(request: RequestContext) -> None:
            products = catalogue_of(request.values)["products"]
            request.values.update({self.save: products, self.save_count: len(products)})

        return handle


class FindProduct(Step):
    """Return the catalogue's product with the given ID, or None."""

    keyword = "product"
    catalogue: Any
    id: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves a mapping."""
        catalogue_of, id_of = getter(self.catalogue), getter(self.id)

        def handle(request: RequestContext) -> None:
            product_id = str(id_of(request.values))
            products = catalogue_of(request.values)["products"]
            request.values[self.save] = next((product for product in products if product["id"] == product_id), None)

        return handle


class ConvertPrice(Step):
    """Convert a price from dollars to another currency."""

    keyword = "convert_price"
    price: Any
    currency: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the price; an unknown currency fails the request."""
        price_of, currency_of = getter(self.price), getter(self.currency)

        def handle(request: RequestContext) -> None:
            currency = currency_of(request.values) or "USD"
            if currency not in RATES:
                raise RpcError(Code.INVALID_ARGUMENT, f"unknown currency {currency}")
            price = float(price_of(request.values) or 0.0)
            request.values[self.save] = round(price / RATES["USD"] * RATES[currency], 2)

        return handle


class NewId(Step):
    """Create a unique ID."""

    keyword = "new_id"
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the ID."""

        def handle(request: RequestContext) -> None:
            request.values[self.save] = str(uuid.uuid4())

        return handle


class AddToCart(Step):
    """Add a product to the items of a cart."""

    keyword = "add_to_cart"
    cart: Any
    product: Any
    quantity: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the new list of items."""
        cart_of, product_of, quantity_of = getter(self.cart), getter(self.product), getter(self.quantity)

        def handle(request: RequestContext) -> None:
            cart = cart_of(request.values) or {}
            items = {item["product_id"]: item["quantity"] for item in cart.get("items", ())}
            product = str(product_of(request.values))
            items[product] = items.get(product, 0) + int(quantity_of(request.values) or 1)
            request.values[self.save] = [{"product_id": item, "quantity": count} for item, count in items.items()]

        return handle


class Advertise(Step):
    """Return all advertisements of the requested categories; if there are none, two random ones."""

    keyword = "advertise"
    categories: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves a list."""
        categories_of = getter(self.categories)

        def handle(request: RequestContext) -> None:
            categories = set(categories_of(request.values) or ())
            matching = [product for product in ADVERTISED if categories & set(product["categories"])]
            advertised = matching or random.sample(ADVERTISED, 2)
            request.values[self.save] = [
                {"redirect_url": f"/product/{product['id']}", "text": f"{product['name']} for sale."}
                for product in advertised
            ]

        return handle


class Recommend(Step):
    """Choose products that the user is not looking at.

    If `leaks` is true, each call with `missed` adds the products to a list and extends it by a quarter, like the
    original's flag `recommendationCacheFailure`; every call reads the whole list.
    """

    keyword = "recommend"
    products: Any
    exclude: Any
    leaks: Any
    missed: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves a list of product IDs."""
        products_of, exclude_of = getter(self.products), getter(self.exclude)
        leaks_of, missed_of = getter(self.leaks), getter(self.missed)
        cached: list[str] = []

        def handle(request: RequestContext) -> None:
            values, excluded = request.values, set(exclude_of(request.values) or ())
            if leaks_of(values):
                if missed_of(values):
                    cached.extend(product["id"] for product in products_of(values) or ())
                    # new string objects, as in each response of the catalogue
                    cached.extend("".join((product, " "))[:-1] for product in cached[: len(cached) // 4])
                product_ids = set(cached) or {product["id"] for product in products_of(values) or ()}
            else:
                product_ids = {product["id"] for product in products_of(values) or ()}
            candidates = sorted(product_ids - excluded)
            values[self.save] = random.sample(candidates, min(_MAX_RECOMMENDATIONS, len(candidates)))

        return handle


class KeepThreadsBusy(Step):
    """Keep four threads busy for the next second, unless they already are."""

    keyword = "keep_threads_busy"

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that starts the threads."""
        threads: list[threading.Thread] = []

        def burn() -> None:
            end = time.monotonic() + _BUSY_S
            while time.monotonic() < end:
                sum(range(1000))

        def handle(request: RequestContext) -> None:
            threads[:] = [thread for thread in threads if thread.is_alive()]
            while len(threads) < _BUSY_THREADS:
                thread = threading.Thread(target=burn, daemon=True)
                thread.start()
                threads.append(thread)

        return handle


class CollectGarbage(Step):
    """Fill the memory with objects and collect garbage ten times, which blocks all requests."""

    keyword = "collect_garbage"

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that collects garbage."""

        def handle(request: RequestContext) -> None:
            garbage: list[list[int]] = [[number] for number in range(_GARBAGE_OBJECTS)]
            for _ in range(_COLLECTIONS):
                gc.collect()
            garbage.clear()

        return handle


class ConnectToUnknownHost(Step):
    """Try thirty times to reach a store at a host that does not exist, then fail."""

    keyword = "connect_to_unknown_host"
    host: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that fails the request."""

        async def handle(request: RequestContext) -> None:
            for _ in range(_CONNECT_RETRIES):
                try:
                    await service.caller.names.address(self.host)
                except (UnknownHostError, OSError):
                    await asyncio.sleep(_RETRY_PAUSE_S)
            service.log.error(location, "Wasn't able to connect to redis")
            raise RpcError(Code.FAILED_PRECONDITION, "Can't access cart storage.")

        return handle


STEPS = (
    ListProducts,
    FindProduct,
    ConvertPrice,
    NewId,
    AddToCart,
    Advertise,
    Recommend,
    KeepThreadsBusy,
    CollectGarbage,
    ConnectToUnknownHost,
)
"""All steps of this module."""
