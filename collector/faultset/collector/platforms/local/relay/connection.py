"""A connection from a client to a pod, made of two kernel connections.

The kernel accepts the client's connection immediately. With an impairment, the client's `connect` therefore returns
early, and the delay appears in the first response. A client that gives up before then never reaches the target.
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
    count_drops,
    count_packets,
)

HELD_BYTES = 256 * 1024
"""Maximum number of bytes in flight from one end, like the size of a socket buffer."""

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
    """The socket at one end of the connection; data received from `pod` is forwarded to the end `other`."""

    __slots__ = (
        "_delayed", "_flow", "_held", "_held_bytes", "_loop", "_on_early_close", "_on_end", "_pauses", "_rng",
        "_timer", "finished", "lost", "other", "pod", "transport",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: Random, pod: Pod, on_end: Callable[[], None] | None = None
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
        self._delayed: list[bytes | _Close] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=HELD_BYTES)
        # early releases of Python 3.11 start reading after this call, even if it has paused reading
        self._loop.call_soon(self._hold_back)

    def _hold_back(self) -> None:
        if self._pauses:
            self.transport.pause_reading()

    def start(self) -> None:
        """Start forwarding once both ends exist."""
        was_buffering = self._on_early_close is not None
        self._on_early_close = None
        if was_buffering:
            items, self._held = self._held, deque()
            self._held_bytes = 0
            for item in items:
                self._send(item)
            if self._held_bytes < HELD_BYTES:
                self._resume(_Pause.HELD)
        self._resume(_Pause.SET_UP)

    def await_set_up(self, on_close: Callable[[], None]) -> None:
        """Buffer the client's data during the set-up; call `on_close` if the client gives up."""
        if self._on_early_close is None:
            self._on_early_close = on_close
            self.transport.resume_reading()

    def reset(self) -> None:
        """Reset this connection and drop unsent data."""
        if not self.lost:
            self.lost = True
            endpoint = self.transport.get_extra_info("socket")
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()
        self._forget()

    def data_received(self, data: bytes) -> None:
        if (self.other.pod.rules or self._delayed is not None) and self._on_end is None and self._apply_rules(data):
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

    def _apply_rules(self, data: bytes) -> bool:
        """Impair a client's request if a rule applies; return False if the data must still be sent."""
        if self._delayed is not None:
            self._delayed.append(data)
            return True
        if self._on_early_close is not None:
            return False
        pod = self.other.pod
        for rule in pod.rules:
            if not rule.applies_to(self.pod.name, data, self._rng, self._loop.time()):
                continue
            pod.impaired_count += 1
            match rule.impairment:
                case Hold(latency_s=latency_s):
                    self._delayed = [data]
                    self._loop.call_later(latency_s, self._release)
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

    def _release(self) -> None:
        delayed, self._delayed = self._delayed, None
        for item in delayed or ():
            if not self.lost:
                self._send(item)

    def eof_received(self) -> bool:
        self._pauses |= _Pause.FINISHED
        if self._on_end is not None:
            self._on_end()
        if self._on_early_close is not None:
            self._on_early_close()
        elif self._delayed is not None:
            self._delayed.append(_Close.FINISH)
        else:
            self._send(_Close.FINISH)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        was_lost, self.lost = self.lost, True
        if was_lost:
            return
        if self._on_early_close is not None:
            self._on_early_close()
        elif exc is not None:
            self._close_other()

    def pause_writing(self) -> None:
        self.other._pause(_Pause.WRITER)

    def resume_writing(self) -> None:
        self.other._resume(_Pause.WRITER)

    def _close_other(self) -> None:
        """Reset the other end, since this end was reset or its process has ended."""
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
                self._count(FlowStep(passed=count_packets(size)))
                self._deliver(item)
                return
            self._flow = Flow(self._rng)
        self._hold(item, size)
        now_s = self._loop.time()
        self._count(self._flow.send(now_s, count_packets(size), self._link(), self.pod.queue_s(now_s, size)))
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
        step = flow.step(self._loop.time(), self._link())
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
        other.pod.receive_packets += count_packets(size)
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
                # an end that has sent its last data is no longer read, so a reset is only noticed when writing
                other.lost = True
                other.transport.abort()
                other._close_other()
                return
            if other.finished:
                self.transport.close()
                other.transport.close()

    def _link(self) -> Link:
        return self.pod.link.towards(self.other.pod.link)

    def _count(self, step: FlowStep) -> None:
        self.pod.transmit_packets += step.passed
        if step.lost:
            count_drops(self.pod, self.other.pod, step.lost)

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
    """Sets up a connection: accepts the client, connects to the target, then forwards data."""

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

    async def run(self, client_socket: socket.socket, client_ip: str, address: tuple[str, int]) -> bool:
        """Set up the connection; return False if the target refused it."""
        self._task = asyncio.current_task()
        client = self._client
        await self._loop.connect_accepted_socket(lambda: client, client_socket)
        try:
            if (
                client.pod.link is not CLEAR or self._target.pod.link is not CLEAR
            ) and not await self._await_handshake():
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

    async def _await_handshake(self) -> bool:
        """Wait until a connection attempt succeeds in both directions; return False if none does."""
        client, target = self._client.pod, self._target.pod
        self._client.await_set_up(self._give_up)
        for wait_s in SET_UP_RETRIES_S:
            forward, backward = client.link.towards(target.link), target.link.towards(client.link)
            if forward.draw_losses(self._rng, 1):
                count_drops(client, target, 1)
            elif backward.draw_losses(self._rng, 1):
                client.transmit_packets += 1
                target.receive_packets += 1
                count_drops(target, client, 1)
            else:
                await asyncio.sleep(forward.travel_s(self._rng) + backward.travel_s(self._rng))
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
