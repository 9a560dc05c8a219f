"""What the spec of HotelReservation says."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.apps.hotel.operations import nights
from faultset.collector.spec.app import AppSpec


@pytest.fixture(scope="module")
def hotel() -> AppSpec:
    return load_app("hotel")


def documents(app: AppSpec, store: str, collection: str) -> list[dict[str, Any]]:
    return list(app.services[store].collections[collection].all())


def test_hotel_has_the_services_of_the_original(hotel: AppSpec) -> None:
    kinds: dict[str, list[str]] = {}
    for service in hotel.services.values():
        kinds.setdefault(service.kind, []).append(service.name)
    assert kinds == {
        "frontend": ["frontend"],
        "logic": ["search", "geo", "rate", "profile", "recommendation", "user", "reservation"],
        "cache": ["memcached-rate", "memcached-profile", "memcached-reserve"],
        "database": [f"mongodb-{x}" for x in ("geo", "rate", "profile", "recommendation", "reservation", "user")],
        "infrastructure": ["consul"],
    }
    assert hotel.services["frontend"].calls == ("search", "reservation", "profile", "recommendation", "user")
    assert ("search", "rate") in hotel.calls
    assert ("rate", "memcached-rate") in hotel.calls
    assert hotel.consumers("mongodb-geo") == ("geo",)
    assert [name for name, one in hotel.services.items() if one.reads_store_at_start] == [
        "geo",
        "recommendation",
        "user",
    ]
    assert [name for name, one in hotel.services.items() if one.auth == "password"] == ["mongodb-geo", "mongodb-rate"]


def test_hotel_holds_80_hotels_27_of_them_with_a_rate_plan_and_501_users(hotel: AppSpec) -> None:
    hotels = documents(hotel, "mongodb-geo", "geo")
    assert [item["hotelId"] for item in hotels] == [str(number) for number in range(1, 81)]
    assert hotels[79] == {"hotelId": "80", "lat": 38.2635, "lon": -121.77}
    plans = [int(item["hotelId"]) for item in documents(hotel, "mongodb-rate", "inventory")]
    assert plans == [1, 2, 3, *range(9, 81, 3)]
    users = documents(hotel, "mongodb-user", "user")
    assert len(users) == 501
    assert users[12] == {"username": "Cornell_12", "password": hashlib.sha256(b"12" * 10).hexdigest()}


def test_requests_are_drawn_within_their_bounds(hotel: AppSpec) -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        search = hotel.requests["search"].draw(rng)
        assert "2015-04-09" <= search["inDate"] < search["outDate"] <= "2015-04-24"
        assert 37.783 <= float(search["lat"]) <= 38.264
        assert -122.252 <= float(search["lon"]) <= -121.927
        reserve = hotel.requests["reserve"].draw(rng)
        assert 1 <= len(nights(reserve["inDate"], reserve["outDate"])) <= 5
        assert reserve["password"] == reserve["username"].removeprefix("Cornell_") * 10
        assert set(reserve) == {"inDate", "outDate", "hotelId", "customerName", "username", "password", "number"}
    drawn = [hotel.requests["recommend"].draw(rng)["require"] for _ in range(600)]
    assert all(150 < drawn.count(name) < 250 for name in ("dis", "rate", "price"))


def test_the_standard_mix_is_the_original_one(hotel: AppSpec) -> None:
    assert hotel.mixes["standard"].shares == {"search": 0.6, "recommend": 0.39, "login": 0.005, "reserve": 0.005}
