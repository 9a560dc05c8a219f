"""Addresses in 127.0.0.0/8: a block of 65536 for each episode, with one address per Service and per pod."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable

from faultset.core.errors import PlatformError

FIRST_BLOCK, LAST_BLOCK = 10, 250
_CLAIM_PORT = 19_119
_RELAYED_OFFSET = 100


class AddressBlock:
    """The addresses 127.A.0.0/16 of one episode, owned for as long as a socket listens on its last one.

    Parameters
    ----------
    number
        A; None takes a free one.

    Raises
    ------
    PlatformError
        The block is taken, or all are.
    """

    def __init__(self, number: int | None = None):
        choices = [number] if number is not None else _shuffled_blocks()
        for choice in choices:
            claimed = _claim(choice)
            if claimed is not None:
                self.number, self._socket = choice, claimed
                break
        else:
            raise PlatformError(
                f"no free addresses: {'127.' + str(number) + '.0.0/16 is' if number is not None else 'all blocks are'} "
                "in use by other episodes; wait for them or end them with `faultset recover`"
            )
        self._services = 0
        self._pods = 0

    @property
    def spans_in(self) -> str:
        """Address to which pods send their spans."""
        return f"127.{self.number}.250.1"

    @property
    def spans_out(self) -> str:
        """Address on which the telemetry process receives them."""
        return f"127.{self.number}.250.2"

    @property
    def load(self) -> str:
        """Address from which the load sends."""
        return f"127.{self.number}.250.3"

    @property
    def spare(self) -> str:
        """Address that is used only to try ports."""
        return f"127.{self.number}.250.4"

    def service(self) -> str:
        """Return an unused address for a Service."""
        self._services += 1
        if self._services > 254:
            raise PlatformError("an episode has room for 254 Services; the application has more")
        return f"127.{self.number}.0.{self._services}"

    def pod(self) -> str:
        """Return an unused address for a pod; none is used twice in an episode."""
        block, last = divmod(self._pods, 254)
        self._pods += 1
        if block >= _RELAYED_OFFSET - 1:
            raise PlatformError("the episode has used up its addresses for pods; more than 25000 were made")
        return f"127.{self.number}.{1 + block}.{1 + last}"

    @staticmethod
    def relayed(pod_address: str) -> str:
        """Return the address through which the pod at `pod_address` itself is reached, behind whatever Service."""
        first, number, block, last = pod_address.split(".")
        return f"{first}.{number}.{int(block) + _RELAYED_OFFSET}.{last}"

    def check_ports(self, ports: Iterable[int]) -> None:
        """Raise PlatformError when a program listens on one of the ports at every address of this machine."""
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.spare, port))
                    probe.listen(1)
                except OSError as error:
                    raise PlatformError(
                        f"port {port} cannot be used at 127.{self.number}.0.0/16: {error.strerror}; "
                        "end the program that listens there on all addresses"
                    ) from None

    def release(self) -> None:
        """Let others have the block; may be called twice."""
        self._socket.close()


def _shuffled_blocks() -> list[int]:
    """Begin somewhere else in every process, so that a block just freed rests for a while."""
    blocks = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
    random.Random(f"{os.getpid()} {os.times().elapsed}").shuffle(blocks)
    return blocks


def _claim(number: int) -> socket.socket | None:
    held = socket.socket()
    try:
        held.bind((f"127.{number}.255.254", _CLAIM_PORT))
        held.listen(1)
    except OSError:
        held.close()
        return None
    return held
