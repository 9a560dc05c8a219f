"""All programs of HotelReservation at once: what a client gets, and the traces, logs and metrics of it."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter, defaultdict

import pytest
from span_receiver import ReceivedSpan, Receiver
from stage import Process, Stage

from faultset.collector.spec.workload import Mix

CODE = ("frontend", "search", "geo", "rate", "profile", "recommendation", "user", "reservation")


@pytest.fixture
def running(stage: Stage) -> dict[str, Process]:
    """Every program, up and registered."""
    processes = stage.start_all()
    stage.wait(lambda: all("Successfully registered" in processes[name].log for name in CODE), "registration")
    return processes


def trace_of(receiver: Receiver, root: str, stage: Stage, index: int = -1) -> list[ReceivedSpan]:
    """Return the spans of the latest trace with this root."""
    stage.wait(lambda: any(span.name == root for span in receiver.spans), "the root span arrives")
    stage.wait(lambda: len(services_of(receiver, root, index)) >= 2, "more spans arrive")
    return services_of(receiver, root, index)


def services_of(receiver: Receiver, root: str, index: int) -> list[ReceivedSpan]:
    roots = [span for span in receiver.spans if span.name == root]
    return [span for span in receiver.spans if span.trace == roots[index].trace]


def test_a_search_finds_hotels_and_leaves_the_trace_of_the_original(
    stage: Stage, receiver: Receiver, running: dict[str, Process]
) -> None:
    status, body = stage.search()
    assert status == 200
    assert [feature["id"] for feature in json.loads(body)["features"]] == ["36"]
    root = "HTTP GET /hotels"
    stage.wait(lambda: sum(span.name == root for span in receiver.spans) == 1, "the cold root")

    assert stage.search()[0] == 200
    stage.wait(lambda: sum(span.name == root for span in receiver.spans) == 2, "the warm root")
    stage.wait(lambda: len(services_of(receiver, root, -1)) >= 15, "15 spans")
    spans = services_of(receiver, root, -1)
    assert Counter(span.name for span in spans) == {
        "HTTP GET /hotels": 1,
        "/search.Search/Nearby": 2,
        "/geo.Geo/Nearby": 2,
        "/rate.Rate/GetRates": 2,
        "memcached_get_multi_rate": 1,
        "/reservation.Reservation/CheckAvailability": 2,
        "memcached_capacity_get_multi_number": 1,
        "memcached_reserve_get_multi_number": 1,
        "/profile.Profile/GetProfiles": 2,
        "memcached_get_profile": 1,
    }
    by_id = {span.span: span for span in spans}
    edges = {(by_id[span.parent].service, span.service, span.kind) for span in spans if span.parent}
    assert {("frontend", "frontend", "client"), ("frontend", "search", "server"), ("search", "geo", "server")} <= edges
    assert sum(span.parent == "" for span in spans) == 1
    geo = next(span for span in spans if span.name == "/geo.Geo/Nearby" and span.kind == "server")
    assert geo.pod == "geo-6d9c8b7f4-x2k4f"
    assert geo.peer == stage.addresses["geo"]
    assert geo.attributes == {"component": "gRPC", "response_code": 0, "response_class": "2xx"}
    assert not any(span.error for span in spans)


def test_every_kind_of_request_is_served_and_leaves_lines_with_its_trace(
    stage: Stage, receiver: Receiver, running: dict[str, Process]
) -> None:
    stay = {"inDate": "2015-04-10", "outDate": "2015-04-12"}
    login = {"username": "Cornell_3", "password": "3333333333"}
    status, body = stage.ask("/recommendations", require="rate", lat="38.0", lon="-122.0")
    assert (status, len(json.loads(body)["features"])) == (200, 5)
    assert "Login successfully!" in stage.ask("/user", "POST", 9.0, **login)[1]
    assert stage.ask("/user", "POST", 9.0, username="Cornell_3", password="no") == (
        200,
        '{"message": "Failed. Please check your username and password. "}',
    )
    reserve = {**stay, **login, "hotelId": "9", "customerName": "Cornell_3", "number": "1"}
    assert "Reserve successfully!" in stage.ask("/reservation", "POST", 9.0, **reserve)[1]
    assert stage.redis("mongodb-reservation", "LLEN", "reservation-db.reservation:9_2015-04-11_2015-04-12") == "1"
    stage.wait(
        lambda: stage.redis("memcached-reserve", "GET", "9_2015-04-11_2015-04-12") == "1", "the cache is updated"
    )
    assert "Already reserved" in stage.ask("/reservation", "POST", 9.0, **{**reserve, "number": "300"})[1]
    assert stage.ask("/hotels", "GET", 9.0, lat="1", lon="2") == (400, "Please specify inDate/outDate params\n")
    assert stage.search(lat="north")[0] == 400
    assert stage.ask("/recommendations", require="luck", lat="38.0", lon="-122.0")[0] == 400
    assert stage.ask("/nowhere")[0] == 404

    line = re.search(
        r"^\S+T\S+\.\d{3}Z TRC services/user/server.go:\d+ > In CheckUser trace_id=(\w{32}) span_id=(\w{16})$",
        running["user"].log,
        re.MULTILINE,
    )
    assert line is not None
    stage.wait(lambda: any(span.span == line[2] for span in receiver.spans), "the span of the line")
    assert next(span for span in receiver.spans if span.span == line[2]).trace == line[1]

    lines = stage.metrics("frontend").splitlines()
    assert (
        'http_server_request_duration_seconds_count{http_request_method="POST",'
        'http_response_status_code="200",http_route="/user"} 2.0' in lines
    )
    assert any(line.startswith("process_cpu_seconds_total ") for line in lines)
    assert not any("_created" in line for line in lines)
    buckets = [line for line in lines if line.startswith("http_server_request_duration_seconds_bucket")]
    assert max(Counter(re.sub('le="[^"]*"', "", line.split()[0]) for line in buckets).values()) == 15


def test_the_start_of_a_service_is_logged_as_in_the_original(stage: Stage) -> None:
    geo = stage.start_all("consul", "mongodb-geo", "geo")["geo"]
    stage.wait(lambda: "Successfully registered" in geo.log, "registration")
    messages = [line.partition(" > ")[2] for line in geo.log.splitlines()]
    assert messages[:8] == [
        "Tune: setGCPercent to 100",
        "Reading config...",
        "Read database URL: mongodb-geo:27017",
        "Initializing DB connection...",
        "New session successfull...",
        "Generating test data...",
        "Successfull",
        "Read target port: 8083",
    ]
    assert any(f"service name: geo | host: {stage.telemetry[7:]}" in text for text in messages)  # type: ignore[index]
    assert any("name: srv-geo" in text and f"address: {stage.addresses['geo']}:8083" in text for text in messages)
    assert stage.redis("mongodb-geo", "HLEN", "geo-db.geo") == "80"


def test_sigterm_ends_a_service_with_exit_code_0_and_its_last_spans(stage: Stage, receiver: Receiver) -> None:
    processes = stage.start_all("consul", "mongodb-user", "user", "frontend")
    assert stage.log_in()[0] == 200
    for name in ("user", "frontend", "consul"):
        processes[name].end(signal.SIGTERM)
        stage.wait(lambda name=name: not processes[name].alive, f"{name} ends")
        assert processes[name].exit_code == 0
    assert Counter(span.service for span in receiver.spans) == {"frontend": 2, "user": 1}


def test_the_level_info_restores_the_silence_of_the_original(stage: Stage) -> None:
    (stage.folder / "app.yaml").write_text(
        (stage.folder / "app.yaml").read_text().replace("label_key:", "log_level: info\nlabel_key:")
    )
    processes = stage.start_all("consul", "mongodb-user", "user", "frontend")
    assert stage.log_in()[0] == 200
    assert " TRC " not in processes["user"].log
    assert " INF " in processes["user"].log


def test_shares_of_the_default_mix_let_faults_of_every_service_show(stage: Stage) -> None:
    app = stage.app
    seen: dict[str, float] = defaultdict(float)
    mix: Mix = app.mixes[app.default_mix]
    for name, share in mix.shares.items():
        seen[app.requests[name].path] += share
    assert seen["/user"] >= 0.10
    assert min(seen.values()) > 0.01
