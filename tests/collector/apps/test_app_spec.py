"""Application specs: what HotelReservation says, and what a wrong spec is told."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from faultset.collector.apps import app_names, load_app
from faultset.collector.faults.registry import faults
from faultset.collector.load.schedule import Schedule
from faultset.collector.plans.request import unfit
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.collections import Collection, nights
from faultset.collector.spec.files import parse, write
from faultset.core.errors import UsageError


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


@pytest.mark.parametrize("name", app_names())
def test_a_written_spec_reads_as_the_same_app(name: str) -> None:
    app = load_app(name)
    assert parse(write(app), "written") == app


def test_generated_documents_follow_their_rules() -> None:
    collection = Collection.model_validate(
        {
            "key": "id",
            "documents": [{"id": "0"}],
            "generated": [
                {
                    "first": 2,
                    "last": 7,
                    "multiple_of": 3,
                    "fields": {"id": "{i}", "n": {"start": 1, "step": 0.5}, "c": [{"cycle": ["a", "b"]}]},
                }
            ],
        }
    )
    assert list(collection.all()) == [
        {"id": "0"},
        {"id": "3", "n": 2.5, "c": ["b"]},
        {"id": "6", "n": 4.0, "c": ["a"]},
    ]


def test_an_unknown_app_is_told_the_nearest_name() -> None:
    with pytest.raises(UsageError, match='no app "hotle"; did you mean "hotel"'):
        load_app("hotle")
    with pytest.raises(UsageError, match='no mix "defualt"; did you mean "default"'):
        load_app("hotel").mix("defualt")


def changed(app: AppSpec, *path: str, value: Any) -> str:
    whole = yaml.safe_load(write(app))
    place = whole
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return yaml.safe_dump(whole)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("services", "geo", "port"), "many", r"services\.geo\.port"),
        (("services", "geo", "prot"), 1, r"services\.geo\.prot: Extra inputs"),
        (("services", "geo", "stores"), ["mongodb-gee"], "service geo names 'mongodb-gee'"),
        (("entry",), ["fronted", 5000], "entry names 'fronted'"),
        (("default_mix",), "usual", "default_mix names 'usual'"),
        (("mixes", "default", "shares"), {"search": 0.5}, "add up to 1; found 0.5"),
        (("mixes", "default", "shares"), {"sarch": 1}, "mix default names 'sarch'"),
        (
            ("services", "search", "operations", "/search.Search/Nearby", "steps"),
            [{"neerby": {}}],
            "unknown behaviour 'neerby'; known are",
        ),
        (
            ("services", "search", "operations", "/search.Search/Nearby", "steps"),
            [{"call": {"service": "geo", "operation": "/geo.Geo/Far", "send": {}, "save": "x"}}],
            "service search, call names '/geo.Geo/Far'",
        ),
        (
            ("services", "geo", "operations", "/geo.Geo/Nearby", "steps"),
            [{"nearby": {"index": "dots", "lat": 1, "lon": 2, "radius_km": 1, "limit": 1, "save": "x"}}],
            "service geo, operation /geo.Geo/Nearby names 'dots'",
        ),
    ],
)
def test_a_wrong_spec_is_told_where_and_why(hotel: AppSpec, path: tuple[str, ...], value: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(changed(hotel, *path, value=value), "app.yaml")


@pytest.mark.parametrize(("text", "told"), [("a: [", "app.yaml is not YAML"), ("3", "found int")])
def test_a_spec_that_is_no_mapping_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(text, "app.yaml")


@pytest.mark.parametrize("name", [name for name in app_names() if load_app(name).deployed])
def test_apps_that_somebody_else_deploys_have_faults_that_need_nothing_of_ours(name: str) -> None:
    app = load_app(name)
    usable = {fault for fault, spec in faults().items() if not unfit(spec, app)}
    assert {"target-port", "wrong-selector", "network-loss", "container-kill", "pod-kill", "missing-image"} <= usable
    assert not {"revoke-auth", "buggy-image", "memory-leak", "wrong-binary", "cpu-hog"} & usable
    assert "programs of ours" in unfit(faults()["revoke-auth"], app)
    schedule = Schedule(app, app.default_mix, 1)
    drawn = [schedule.next() for _ in range(200)]
    assert all("{" not in request.path for request in drawn)
    assert {request.kind for request in drawn} == set(range(len(schedule.endpoints)))


def test_an_app_file_is_read_and_a_wrong_one_is_told_its_first_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    text = """
name: shop
title: A shop
version: "1"
label_key: app
deployed: {namespace: shop}
entry: [web, 80]
services:
  web: {kind: frontend, callees: [cart], objects: {Deployment: web-deployment}}
  cart: {kind: logic}
requests: {home: {method: GET, path: /}}
mixes: {home: {title: the front page, shares: {home: 1.0}}}
default_mix: home
"""
    path.write_text(text, encoding="utf-8")
    app = load_app(str(path))
    assert (app.calls, app.deployed and app.deployed.namespace) == ((("web", "cart"),), "shop")
    path.write_text(text.replace("deployed: {namespace: shop}", ""), encoding="utf-8")
    with pytest.raises(UsageError, match="service web needs container, program and port, since we deploy it"):
        load_app(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        load_app(str(tmp_path / "none.yaml"))
