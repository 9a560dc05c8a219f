"""The steps that only the Astronomy Shop needs, its advertised products and exchange rates."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.http.client import UnknownHostError
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Getter, Step, ValueStep, getter

ADVERTISED: tuple[dict[str, Any], ...] = (
    {"id": "OLJCESPC7Z", "name": "National Park Foundation Explorascope", "categories": ("telescopes",)},
    {"id": "66VCHSJNUP", "name": "Starsense Explorer Refractor Telescope", "categories": ("telescopes",)},
    {"id": "1YMWWN1N4O", "name": "Eclipsmart Travel Refractor Telescope", "categories": ("telescopes", "travel")},
    {"id": "L9ECAV7KIM", "name": "Lens Cleaning Kit", "categories": ("accessories",)},
    {"id": "2ZYFJ3GM2N", "name": "Roof Binoculars", "categories": ("binoculars",)},
    {"id": "0PUK6V6EV0", "name": "Solar System Color Imager", "categories": ("accessories", "telescopes")},
    {"id": "LS4PSXUNUM", "name": "Red Flashlight", "categories": ("accessories", "flashlights")},
    {"id": "9SIQT8TOJO", "name": "Optical Tube Assembly", "categories": ("accessories", "telescopes", "assembly")},
    {"id": "6E92ZMYYFZ", "name": "Solar Filter", "categories": ("accessories", "telescopes")},
    {"id": "HQTGWGPNH4", "name": "The Comet Book", "categories": ("books",)},
)
"""The advertised products with their categories."""

RATES = {"USD": 1.1305, "EUR": 1.0, "JPY": 126.4, "GBP": 0.85970, "CHF": 1.1360, "CAD": 1.5128, "INR": 79.4320}
"""Price of a euro in other currencies."""


Values = Mapping[str, Any]

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
        return (self.save, self.save_count)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        catalogue_of = getter(self.catalogue)

        def handle(request: RequestContext) -> None:
            products = catalogue_of(request.values)["products"]
            request.values.update({self.save: products, self.save_count: len(products)})

        return handle


class FindProduct(ValueStep):
    """Return the catalogue's product with the given ID, or None."""

    keyword = "product"
    catalogue: Any
    id: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        catalogue_of, id_of = getter(self.catalogue), getter(self.id)

        def find(values: Values) -> Any:
            product_id = str(id_of(values))
            return next((product for product in catalogue_of(values)["products"] if product["id"] == product_id), None)

        return find


class ConvertPrice(ValueStep):
    """Convert a price from dollars to another currency; an unknown currency fails the request."""

    keyword = "convert_price"
    price: Any
    currency: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        price_of, currency_of = getter(self.price), getter(self.currency)

        def convert(values: Values) -> float:
            currency = currency_of(values) or "USD"
            if currency not in RATES:
                raise RpcError(Code.INVALID_ARGUMENT, f"unknown currency {currency}")
            return round(float(price_of(values) or 0.0) / RATES["USD"] * RATES[currency], 2)

        return convert


class NewId(ValueStep):
    """Create a unique ID."""

    keyword = "new_id"
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        return lambda values: str(uuid.uuid4())


class AddToCart(ValueStep):
    """Add a product to the items of a cart, and save the new list of items."""

    keyword = "add_to_cart"
    cart: Any
    product: Any
    quantity: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        cart_of, product_of, quantity_of = getter(self.cart), getter(self.product), getter(self.quantity)

        def add(values: Values) -> list[dict[str, Any]]:
            items = {item["product_id"]: item["quantity"] for item in (cart_of(values) or {}).get("items", ())}
            product = str(product_of(values))
            items[product] = items.get(product, 0) + int(quantity_of(values) or 1)
            return [{"product_id": item, "quantity": count} for item, count in items.items()]

        return add


class Advertise(ValueStep):
    """Return all advertisements of the requested categories; if there are none, two random ones."""

    keyword = "advertise"
    categories: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        categories_of = getter(self.categories)

        def choose(values: Values) -> list[dict[str, str]]:
            categories = set(categories_of(values) or ())
            matching = [product for product in ADVERTISED if categories & set(product["categories"])]
            return [
                {"redirect_url": f"/product/{product['id']}", "text": f"{product['name']} for sale."}
                for product in matching or random.sample(ADVERTISED, 2)
            ]

        return choose


class Recommend(ValueStep):
    """Choose the IDs of products that the user is not looking at.

    If `leaks` is true, each call with `missed` adds the products to a list and extends it by a quarter, like the
    original's flag `recommendationCacheFailure`; every call reads the whole list.
    """

    keyword = "recommend"
    products: Any
    exclude: Any
    leaks: Any
    missed: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        products_of, exclude_of = getter(self.products), getter(self.exclude)
        leaks_of, missed_of = getter(self.leaks), getter(self.missed)
        cached: list[str] = []

        def choose(values: Values) -> list[str]:
            excluded, product_ids = set(exclude_of(values) or ()), set[str]()
            if leaks_of(values):
                if missed_of(values):
                    cached.extend(product["id"] for product in products_of(values) or ())
                    # new string objects, as in each response of the catalogue
                    cached.extend("".join((product, " "))[:-1] for product in cached[: len(cached) // 4])
                product_ids = set(cached)
            product_ids = product_ids or {product["id"] for product in products_of(values) or ()}
            candidates = sorted(product_ids - excluded)
            return random.sample(candidates, min(_MAX_RECOMMENDATIONS, len(candidates)))

        return choose


class KeepThreadsBusy(Step):
    """Keep four threads busy for the next second, unless they already are."""

    keyword = "keep_threads_busy"

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
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
    ListProducts, FindProduct, ConvertPrice, NewId, AddToCart, Advertise, Recommend, KeepThreadsBusy, CollectGarbage,
    ConnectToUnknownHost,
)  # fmt: skip
