"""Probes of real sockets."""

from __future__ import annotations

import http.server
import socket
import threading
import time

import pytest
from closed_ports import closed_port

from faultset.collector.platforms.cluster.context import ProbeContainer
from faultset.collector.platforms.local.worker import Prober, probe_container


def probe(port, path=None):
    return ProbeContainer(
        uid="u", container="c", attempt=0, purpose="readiness", address="127.0.0.1", port=port, path=path, timeout_s=0.2
    )


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 503)
        self.end_headers()

    def log_message(self, format, *args):  # noqa: A002
        pass


@pytest.fixture
def page():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def silent():
    """A program that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed():
    with closed_port() as port:
        yield port


def test_a_port_that_accepts_is_well_and_a_closed_one_is_refused(silent, closed):
    assert probe_container(probe(silent)) == ""
    assert probe_container(probe(closed)) == f"dial tcp 127.0.0.1:{closed}: connect: connection refused"


def test_a_page_is_well_by_its_status(page, silent):
    assert probe_container(probe(page, "/metrics")) == ""
    assert probe_container(probe(page, "/")) == "HTTP probe failed with statuscode: 503"
    assert probe_container(probe(silent, "/")) == f'Get "http://127.0.0.1:{silent}/": context deadline exceeded'


def test_results_are_fetched_later(silent):
    prober = Prober()
    prober.submit(probe(silent))
    deadline = time.monotonic() + 5
    while not (found := list(prober.results())) and time.monotonic() < deadline:
        time.sleep(0.005)
    prober.close()
    assert [(one.uid, one.failure) for one in found] == [("u", "")]
