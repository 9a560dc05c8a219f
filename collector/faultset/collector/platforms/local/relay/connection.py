"""Set-up of a connection from a client to a pod: two kernel connections that together are one.

The kernel accepts the client's half at once, so `connect` of an impaired pod returns early and the wait shows in
the first answer instead; who gives up before the set-up is through never reaches the target.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from random import Random

from faultset.collector.platforms.local.relay.ends import End
from faultset.collector.platforms.local.relay.pods import Pod, drop
from faultset.collector.platforms.local.relay.schedule import CLEAR, SET_UP_RETRIES_S

_TIMEOUT_S = 1.0
_BIND_ADDRESS_NO_PORT = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)


class Connection:
    """Set-up of one connection: the client is accepted, the target is dialled, then data flows."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        client: Pod,
        target: Pod,
        *,
        on_target_end: Callable[[], None],
    ):
        self._loop = loop
        self._rng = rng
        self._client = End(loop, rng, client)
        self._target = End(loop, rng, target, on_target_end)
        self._client.other, self._target.other = self._target, self._client
        self._task: asyncio.Task[None] | None = None

    async def run(self, accepted: socket.socket, client_ip: str, address: tuple[str, int]) -> bool:
        """Set up the connection; return False when the target refused it."""
        self._task = asyncio.current_task()
        client = self._client
        await self._loop.connect_accepted_socket(lambda: client, accepted)
        try:
            if (client.pod.link is not CLEAR or self._target.pod.link is not CLEAR) and not await self._pass():
                client.reset()
                return True
            timer = self._loop.call_later(_TIMEOUT_S, client.await_set_up, self._give_up)
            try:
                await self._dial(client_ip, address)
            finally:
                timer.cancel()
        except OSError:
            client.reset()
            return False
        except asyncio.CancelledError:
            client.reset()
            raise
        if client.lost:
            self._target.reset()
            return True
        self._target.start()
        client.start()
        return True

    def _give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _pass(self) -> bool:
        """Wait until an attempt to set up the connection gets through both ways."""
        client, target = self._client.pod, self._target.pod
        self._client.await_set_up(self._give_up)
        for wait_s in SET_UP_RETRIES_S:
            there, back = client.link.towards(target.link), target.link.towards(client.link)
            if there.lost(self._rng, 1):
                drop(client, target, 1)
            elif back.lost(self._rng, 1):
                client.transmit_packets += 1
                target.receive_packets += 1
                drop(target, client, 1)
            else:
                await asyncio.sleep(there.travel_s(self._rng) + back.travel_s(self._rng))
                return True
            await asyncio.sleep(wait_s)
        return False

    async def _dial(self, client_ip: str, address: tuple[str, int]) -> None:
        endpoint = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            endpoint.setblocking(False)
            if client_ip.startswith("127."):
                endpoint.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
                endpoint.bind((client_ip, 0))
            await self._loop.sock_connect(endpoint, address)
            await self._loop.create_connection(lambda: self._target, sock=endpoint)
        except BaseException:
            endpoint.close()
            raise
        for end in (self._client, self._target):
            end.pod.transmit_packets += 1
            end.pod.receive_packets += 1
