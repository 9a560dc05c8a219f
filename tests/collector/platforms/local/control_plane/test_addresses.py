"""The block of addresses that an episode owns."""

from __future__ import annotations

import socket

import pytest

from faultset.collector.platforms.local.control_plane.routing import AddressBlock
from faultset.core.errors import PlatformError


@pytest.fixture
def addresses():
    block = AddressBlock()
    yield block
    block.release()


def test_a_block_is_owned_by_one_episode_at_a_time(addresses):
    with pytest.raises(PlatformError, match=rf"127\.{addresses.number}\.0\.0/16 is in use by other episodes"):
        AddressBlock(addresses.number)


def test_a_released_block_can_be_claimed_again():
    block = AddressBlock()
    block.release()
    again = AddressBlock(block.number)
    again.release()


def test_a_port_that_somebody_has_is_named(addresses):
    with socket.socket() as taken:
        taken.bind((addresses.spare, 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with pytest.raises(PlatformError, match=f"port {port} cannot be used at 127"):
            addresses.check_ports([port])
    addresses.check_ports([port])


def test_no_address_is_given_twice(addresses):
    given = [addresses.pod() for _ in range(600)] + [addresses.service() for _ in range(254)]
    assert len(set(given)) == len(given)
    scraping = {addresses.relayed(address) for address in given[:600]}
    assert len(scraping) == 600
    assert not scraping & set(given)


def test_too_many_services_are_refused(addresses):
    for _ in range(254):
        addresses.service()
    with pytest.raises(PlatformError, match="room for 254 Services"):
        addresses.service()
