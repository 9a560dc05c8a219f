"""Pods' metrics on addresses of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, start_http_server

_addresses = itertools.count(1)
_process = 1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Tests run in several processes at a time, which share the machine's addresses."""

METRICS_PORT = 9464


@pytest.fixture
def free_ip() -> Callable[[], str]:
    """Return addresses that nothing else uses."""
    return lambda: f"127.4.{next(_addresses)}.{_process}"


@pytest.fixture
def serve_metrics(free_ip: Callable[[], str]) -> Iterator[Callable[[CollectorRegistry], tuple[str, int]]]:
    """Serve registries with the client library until the test ends."""
    with ExitStack() as stack:

        def serve(registry: CollectorRegistry) -> tuple[str, int]:
            address = (free_ip(), METRICS_PORT)
            server, thread = start_http_server(METRICS_PORT, addr=address[0], registry=registry)
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return address

        yield serve
