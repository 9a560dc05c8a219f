"""Check the driver against a server that refuses requests without the key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from faultset_keyed_http import KeyedHttpDriver

from faultset.collector.load.schedule import ScheduledRequest
from faultset.collector.testing import check_load_driver


class Locked(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.headers["X-Api-Key"] == "sesame" else 403)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Locked)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def request() -> ScheduledRequest:
    return ScheduledRequest(gap=1.0, kind=0, method="GET", path="/", parameters={})


def test_the_driver_passes(url: str) -> None:
    check_load_driver(KeyedHttpDriver, url=url, request=request(), options={"key": "sesame"})


def test_a_wrong_key_is_noticed(url: str) -> None:
    with pytest.raises(AssertionError, match="must be ok, got http_error"):
        check_load_driver(KeyedHttpDriver, url=url, request=request(), options={"key": "open"})
