"""Set-up of a connection from a client to a pod: two kernel connections that together are one.

The kernel accepts the client's half at once, so `connect` of an impaired pod returns early and the wait shows in
the first answer instead; who gives up before the set-up is through never reaches the target.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct
from collections import deque
from collections.abc import Callable
from random import Random

from faultset.collector.platforms.impairments import Abort, Hold, Reset
from faultset.collector.platforms.local.relay.pods import (
    CLEAR,
    PACKET_BYTES,
    REFUSAL,
    SET_UP_RETRIES_S,
    Flow,
    FlowStep,
    Link,
    Pod,
    drop,
    packets,
)

HELD_BYTES = 256 * 1024
"""What one end may have on the way before it has to wait, as its socket buffer would make it."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Close(enum.Enum):
    FINISH = enum.auto()
    RESET = enum.auto()


class _Pause(enum.IntFlag):
    SET_UP = 1
    WRITER = 2
    HELD = 4
    FINISHED = 8


class End(asyncio.Protocol):
    """The socket at one end: what arrives here was sent by `pod` and goes to `other`."""

    __slots__ = (
        "_flow", "_held", "_held_bytes", "_late", "_loop", "_on_early_close", "_on_end", "_pauses", "_rng",
        "_timer", "finished", "lost", "other", "pod", "transport",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        pod: Pod,
        on_end: Callable[[], None] | None = None,
    ):
        self._loop = loop
        self._rng = rng
        self.pod = pod
        self.other: End
        self.transport: asyncio.Transport
        self.finished = self.lost = False
        self._flow: Flow | None = None
        self._held: deque[bytes | _Close] = deque()
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pauses = _Pause.SET_UP
        self._on_early_close: Callable[[], None] | None = None
        self._on_end = on_end
        self._late: list[bytes | _Close] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=HELD_BYTES)
        # early releases of Python 3.11 begin to read after this call, even if it has paused reading
        self._loop.call_soon(self._hold_back)

    def _hold_back(self) -> None:
        if self._pauses:
            self.transport.pause_reading()

    def start(self) -> None:
        """Let data flow, once both ends exist."""
        early = self._on_early_close is not None
        self._on_early_close = None
        if early:
            sent, self._held = self._held, deque()
            self._held_bytes = 0
            for item in sent:
                self._send(item)
            if self._held_bytes < HELD_BYTES:
                self._resume(_Pause.HELD)
        self._resume(_Pause.SET_UP)

    def await_set_up(self, on_close: Callable[[], None]) -> None:
        """Keep what the client sends while the set-up takes its time, and tell when the client gives up."""
        if self._on_early_close is None:
            self._on_early_close = on_close
            self.transport.resume_reading()

    def reset(self) -> None:
        """End this connection as a reset by the other side, dropping what was not sent."""
        if not self.lost:
            self.lost = True
            endpoint = self.transport.get_extra_info("socket")
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()
        self._forget()

    def data_received(self, data: bytes) -> None:
        if (self.other.pod.rules or self._late is not None) and self._on_end is None and self._meets_rule(data):
            return
        if self._flow is None and self._on_early_close is None:
            pod, other = self.pod, self.other
            if pod.link is CLEAR and other.pod.link is CLEAR:
                size = len(data)
                count = -(-size // PACKET_BYTES)
                pod.transmit_bytes += size
                pod.transmit_packets += count
                other.pod.receive_bytes += size
                other.pod.receive_packets += count
                if not other.lost:
                    other.transport.write(data)
                return
        self._send(data)

    def _meets_rule(self, data: bytes) -> bool:
        """Do to a request of a client what a rule says; return whether there is nothing more to do with the data."""
        if self._late is not None:
            self._late.append(data)
            return True
        if self._on_early_close is not None:
            return False
        pod = self.other.pod
        for rule in pod.rules:
            if not rule.concerns(self.pod.name, data, self._rng, self._loop.time()):
                continue
            pod.disturbed += 1
            match rule.impairment:
                case Hold(latency_s=latency_s):
                    self._late = [data]
                    self._loop.call_later(latency_s, self._let_pass)
                case Abort():
                    self.transport.write(REFUSAL)
                    self.lost = True
                    self.transport.close()
                    self.other.reset()
                case Reset():
                    self.reset()
                    self.other.reset()
            return True
        return False

    def _let_pass(self) -> None:
        late, self._late = self._late, None
        for item in late or ():
            if not self.lost:
                self._send(item)

    def eof_received(self) -> bool:
        self._pauses |= _Pause.FINISHED
        if self._on_end is not None:
            self._on_end()
        if self._on_early_close is not None:
            self._on_early_close()
        elif self._late is not None:
            self._late.append(_Close.FINISH)
        else:
            self._send(_Close.FINISH)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        known, self.lost = self.lost, True
        if known:
            return
        if self._on_early_close is not None:
            self._on_early_close()
        elif exc is not None:
            self._vanished()

    def pause_writing(self) -> None:
        self.other._pause(_Pause.WRITER)

    def resume_writing(self) -> None:
        self.other._resume(_Pause.WRITER)

    def _vanished(self) -> None:
        """Pass on that the process at this end reset the connection or is gone."""
        if self._on_end is not None:
            self._on_end()
        self.other._forget()
        self._send(_Close.RESET)

    def _send(self, item: bytes | _Close) -> None:
        size = len(item) if isinstance(item, bytes) else 0
        if self._on_early_close is not None:
            self._hold(item, size)
            return
        other = self.other
        if self._flow is None:
            if self.pod.link is CLEAR and other.pod.link is CLEAR:
                self._count(FlowStep(passed=packets(size)))
                self._deliver(item)
                return
            self._flow = Flow(self._rng)
        self._hold(item, size)
        now_s = self._loop.time()
        self._count(self._flow.send(now_s, packets(size), self._road(), self.pod.queue_s(now_s, size)))
        self._advance()

    def _hold(self, item: bytes | _Close, size: int) -> None:
        self._held.append(item)
        self._held_bytes += size
        if self._held_bytes >= HELD_BYTES:
            self._pause(_Pause.HELD)

    def _advance(self) -> None:
        flow = self._flow
        if flow is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        step = flow.step(self._loop.time(), self._road())
        self._count(step)
        for _ in range(step.delivered):
            if not self._held:
                break
            item = self._held.popleft()
            self._held_bytes -= len(item) if isinstance(item, bytes) else 0
            self._deliver(item)
        if self._flow is None:
            return
        due_s = flow.due_s()
        if due_s is None:
            self._flow = None
        else:
            self._timer = self._loop.call_at(due_s, self._advance)
        if self._held_bytes < HELD_BYTES:
            self._resume(_Pause.HELD)

    def _deliver(self, item: bytes | _Close) -> None:
        other = self.other
        size = len(item) if isinstance(item, bytes) else 0
        self.pod.transmit_bytes += size
        other.pod.receive_bytes += size
        other.pod.receive_packets += packets(size)
        if other.lost:
            return
        if isinstance(item, bytes):
            other.transport.write(item)
        elif item is _Close.RESET:
            other.reset()
        else:
            self.finished = True
            try:
                other.transport.write_eof()
            except OSError:
                # After it closed its side nobody reads from it, so a reset by it shows here first.
                other.lost = True
                other.transport.abort()
                other._vanished()
                return
            if other.finished:
                self.transport.close()
                other.transport.close()

    def _road(self) -> Link:
        return self.pod.link.towards(self.other.pod.link)

    def _count(self, step: FlowStep) -> None:
        self.pod.transmit_packets += step.passed
        if step.lost:
            drop(self.pod, self.other.pod, step.lost)

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0
        self._flow = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pause(self, reason: _Pause) -> None:
        self._pauses |= reason
        self.transport.pause_reading()

    def _resume(self, reason: _Pause) -> None:
        if self._pauses & reason:
            self._pauses &= ~reason
            if not self._pauses:
                self.transport.resume_reading()


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
