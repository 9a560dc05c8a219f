"""The contract checks for applications and load drivers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from faultset.collector.apps import app_names, load_app
from faultset.collector.load.driver import RequestResult
from faultset.collector.load.http_driver import HttpDriver
from faultset.collector.load.schedule import ScheduledRequest
from faultset.collector.testing import check_app, check_load_driver


@pytest.mark.parametrize("name", app_names())
def test_an_installed_application_passes(name: str) -> None:
    assert check_app(name).name == name


def test_a_database_without_a_claim_is_found() -> None:
    hotel = load_app("hotel")
    services = {**hotel.services, "mongodb-geo": hotel.services["mongodb-geo"].model_copy(update={"claim": None})}
    with pytest.raises(AssertionError, match="database mongodb-geo has no claim"):
        check_app(hotel.model_copy(update={"services": services}))


REQUEST = ScheduledRequest(gap=1.0, kind=0, method="GET", path="/", parameters={"a": "1"})


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_http_driver_passes(url: str) -> None:
    check_load_driver(HttpDriver, url=url, request=REQUEST)


def test_a_driver_that_finds_everything_well_is_found(url: str) -> None:
    class Optimist(HttpDriver):
        async def send(self, request: ScheduledRequest) -> RequestResult:
            return RequestResult("ok")

    with pytest.raises(AssertionError, match="the outcome at a closed port"):
        check_load_driver(Optimist, url=url, request=REQUEST)
