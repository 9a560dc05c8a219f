"""Looking up listening sockets, with and without the kernel's table."""

from __future__ import annotations

import socket

import pytest

from faultset.collector.platforms.local.relay.process import ListeningSockets


@pytest.mark.parametrize("silent", [True, False])
def test_only_an_address_where_a_process_listens_accepts(silent: bool) -> None:
    kernel = ListeningSockets(silent=silent)
    with socket.create_server(("127.3.250.1", 0)) as server:
        port = server.getsockname()[1]
        assert kernel.accepting("127.3.250.1", port)
        assert not kernel.accepting("127.3.250.2", port)
    assert not kernel.accepting("127.3.250.1", port)
    kernel.close()


@pytest.mark.parametrize("silent", [True, False])
def test_a_process_that_listens_on_every_address_accepts_on_each(silent: bool) -> None:
    kernel = ListeningSockets(silent=silent)
    with socket.create_server(("127.3.250.3", 0)) as server:
        assert kernel.accepting("127.3.250.3", server.getsockname()[1])
    kernel.close()


def test_a_look_up_leaves_no_connection_behind() -> None:
    kernel = ListeningSockets()
    if not kernel.silent:
        pytest.skip("the kernel does not look up sockets")
    with socket.create_server(("127.3.250.4", 0)) as server:
        assert kernel.accepting(*server.getsockname())
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    kernel.close()
