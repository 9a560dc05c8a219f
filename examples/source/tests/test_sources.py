"""Check both sources; the probes connect to a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from faultset_probes.probes import Probes

from faultset.collector.testing import check_source


class Platform:
    """The part of a platform that the source uses."""

    def __init__(self, address: tuple[str, int]):
        self.address = address
        self.app = self

    @property
    def entry(self) -> tuple[str, int]:
        return "frontend", self.address[1]

    def get(self, kind: str, name: str) -> dict:
        assert (kind, name) == ("Service", "frontend")
        return {"spec": {"clusterIP": self.address[0]}}


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_probes_pass_the_check_of_sources(listening: socket.socket) -> None:
    rows = check_source(Probes, platform=Platform(listening.getsockname()), min_rows=2)
    assert set(rows["service"].to_pylist()) == {"frontend"}
    assert all(0 < value < 1 for value in rows["connect_s"].to_pylist())


def test_a_refused_connection_is_null(listening: socket.socket) -> None:
    address = listening.getsockname()
    listening.close()
    rows = check_source(Probes, platform=Platform(address), min_rows=2)
    assert set(rows["connect_s"].to_pylist()) == {None}


def test_the_load_of_the_machine_passes_the_check_of_sources() -> None:
    rows = check_source("host-load", min_rows=2)
    assert all(value >= 0 for value in rows["value"].to_pylist())
