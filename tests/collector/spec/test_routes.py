"""Routes, and the services that requests reach."""

from __future__ import annotations

from faultset.collector.apps import app_names, load_app
from faultset.collector.spec.routes import find_route, services_reached


def test_a_part_in_braces_stands_for_anything_but_a_slash_and_a_plain_path_comes_first() -> None:
    operations = ("/product/{id}", "/product/new", "/a.b/{x}/{y}")
    assert find_route("/product/7", operations) == ("/product/{id}", {"id": "7"})
    assert find_route("/product/new", operations) == ("/product/new", {})
    assert find_route("/a.b/1/2", operations) == ("/a.b/{x}/{y}", {"x": "1", "y": "2"})
    assert find_route("/product/7/8", operations) is None
    assert find_route("/aXb/1/2", operations) is None


def test_an_endpoint_reaches_what_its_operation_calls_and_the_stores_behind() -> None:
    reached = services_reached(load_app("hotel"))
    assert {"search", "geo", "rate", "profile", "mongodb-geo", "memcached-rate"} <= reached["GET /hotels"]
    assert reached["POST /user"] == {"frontend", "user", "mongodb-user"}


def test_no_request_reaches_the_registry() -> None:
    reached = services_reached(load_app("hotel"))
    assert not [endpoint for endpoint, services in reached.items() if "consul" in services]


def test_every_request_of_every_application_has_an_entry_in_reach() -> None:
    for name in app_names():
        app = load_app(name)
        reached = services_reached(app)
        assert reached.keys() == {request.endpoint for request in app.requests.values()}
        assert all(app.entry.service in services for services in reached.values())


def test_an_entry_whose_operations_are_unknown_reaches_all_that_is_called() -> None:
    app = load_app("hotel")
    entry = app.services["frontend"].model_copy(update={"operations": {}, "callees": ("search", "user")})
    changed = app.model_copy(update={"services": {**app.services, "frontend": entry}})
    everything = services_reached(changed)["POST /user"]
    assert {"frontend", "search", "geo", "mongodb-geo", "user", "mongodb-user"} <= everything
