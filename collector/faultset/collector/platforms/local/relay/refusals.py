"""Limit how often connections to Services without endpoints are refused, as Linux does on a cluster.

On a cluster, kube-proxy refuses a connection with an ICMP message. Linux limits these messages per client; beyond the
limit it ignores attempts to connect, which the client's kernel retries after 1, 2, 3, 4, 5, 7, 11 s and so on.

On the embedded platform, the kernel refuses connections to an address without a listener, and reports each refusal. To
ignore attempts, the relay opens a listener that drops all packets. It cannot drop only the packets of one client, so
all clients of a Service are ignored while one of them has reached its limit."""

from __future__ import annotations

import array
import asyncio
import errno
import functools
import logging
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Collection

Address = tuple[str, int]
"""IPv4 address and port."""

# linux/netlink.h and linux/sock_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_DESTROYED_SOCKETS = 1
_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")

# linux/inet_diag.h: a request, and offsets in a message about a socket, counted from the start of its header
_TCP_LISTEN = 10
_ALL_STATES = 0xFFFFFFFF
_SELECTION = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_PORTS_OFFSET, _CLIENT_OFFSET, _TARGET_OFFSET, _ATTRIBUTES_OFFSET = 20, 24, 40, 88
_ATTRIBUTE = struct.Struct("=HH")
_TCP_INFO = 2
# linux/tcp.h: bytes acknowledged and received, segments sent and received
_TRAFFIC = struct.Struct("=QQII")
_TRAFFIC_OFFSET = 120

# linux/filter.h: code, jumps if true and false, operand
_Instruction = tuple[int, int, int, int]
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_DROP: _Instruction = (_RETURN, 0, 0, 0)
_PASS: _Instruction = (_RETURN, 0, 0, 0xFFFFFFFF)
_SO_ATTACH_FILTER = getattr(socket, "SO_ATTACH_FILTER", 26)

_PROBE_TIMEOUT_S = 0.05

logger = logging.getLogger(__name__)


class ListeningSockets:
    """Looks up listening TCP sockets by address.

    A look-up in the kernel's socket table (inet_diag, available to every user) takes microseconds and is invisible to
    the listening process. If the kernel does not support it, a short connection is made instead.
    """

    def __init__(self, *, silent: bool = True):
        self._netlink: socket.socket | None = None
        if silent:
            try:
                self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
                # the kernel responds within send(), so recv() never has to wait
                self._netlink.setblocking(False)
                _look_up(self._netlink, "127.0.0.1", 1)
            except (OSError, AttributeError, struct.error):
                self.close()

    @property
    def silent(self) -> bool:
        """Whether a look-up is invisible to the listening process."""
        return self._netlink is not None

    def is_listening(self, ip: str, port: int) -> bool:
        """Return whether a process is listening at an address."""
        if self._netlink is not None:
            return _look_up(self._netlink, ip, port)
        with socket.socket() as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            return probe.connect_ex((ip, port)) == 0

    def close(self) -> None:
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


def _look_up(netlink: socket.socket, ip: str, port: int) -> bool:
    netlink.send(_build_request(ip, port))
    response = netlink.recv(1 << 12)
    if _HEADER.unpack_from(response)[1] == _NLMSG_ERROR:
        code = -_ERROR.unpack_from(response, _HEADER.size)[0]
        if code == errno.ENOENT:
            return False
        raise OSError(code, "the kernel cannot look up sockets")
    return response[_HEADER.size + 1] == _TCP_LISTEN


@functools.lru_cache(maxsize=4096)
def _build_request(ip: str, port: int) -> bytes:
    source = socket.inet_aton(ip) + bytes(12)
    any_target, any_interface, any_cookie = bytes(16), bytes(4), b"\xff" * 8
    ports = struct.pack("!HH", port, 0)
    body = _SELECTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
    body += ports + source + any_target + any_interface + any_cookie
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body


class RefusedConnections:
    """Reports each connection that the kernel has refused, once the client closes its socket.

    Parameters
    ----------
    report
        Called with the address of the client, and the address and port that refused it.
    """

    def __init__(self, report: Callable[[str, Address], None]):
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._netlink: socket.socket | None = None
        self._ips: frozenset[str] = frozenset()

    def watch(self, ips: Collection[str]) -> None:
        """Replace the addresses whose refusals are reported; if the kernel does not support it, log a warning."""
        if self._ips == frozenset(ips):
            return
        self._ips = frozenset(ips)
        if not ips:
            self.close()
            return
        try:
            netlink = self._netlink or self._open()
            _attach_filter(netlink, _select_targets(self._ips))
            netlink.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _DESTROYED_SOCKETS)
        except (OSError, AttributeError) as error:
            logger.warning("the kernel does not report refused connections: %s", error)
            self.close()

    def _open(self) -> socket.socket:
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
        self._netlink.setblocking(False)
        self._netlink.bind((0, 0))
        self._loop.add_reader(self._netlink, self._receive)
        return self._netlink

    def _receive(self) -> None:
        try:
            while self._netlink is not None:
                refusal = _read_refusal(self._netlink.recv(1 << 12))
                if refusal is not None:
                    self._report(*refusal)
        except OSError:
            return  # nothing more to read, or reports were lost

    def close(self) -> None:
        if self._netlink is not None:
            self._loop.remove_reader(self._netlink)
            self._netlink.close()
            self._netlink = None


def _read_refusal(message: bytes) -> tuple[str, Address] | None:
    """Return the client and target of a destroyed socket; None unless the target refused the connection."""
    _, port = _PORTS.unpack_from(message, _PORTS_OFFSET)
    client, target = (socket.inet_ntoa(message[at : at + 4]) for at in (_CLIENT_OFFSET, _TARGET_OFFSET))
    at = _ATTRIBUTES_OFFSET
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _TCP_INFO:
            acknowledged, _, _, received = _TRAFFIC.unpack_from(message, at + _ATTRIBUTE.size + _TRAFFIC_OFFSET)
            return (client, (target, port)) if received and not acknowledged else None
        at += max(-(-size // 4) * 4, _ATTRIBUTE.size)
    return None


def ignore_packets(endpoint: socket.socket) -> None:
    """Drop all packets to a socket, so that clients retry their attempts to connect."""
    _attach_filter(endpoint, [_DROP])


def _select_targets(ips: Collection[str]) -> list[_Instruction]:
    """Return a filter for messages about sockets connected to one of at most 255 addresses."""
    words = [int.from_bytes(socket.inet_aton(ip), "big") for ip in ips]
    tests = [(_JUMP_IF_EQUAL, len(words) - index, 0, word) for index, word in enumerate(words)]
    return [(_LOAD_WORD, 0, 0, _TARGET_OFFSET), *tests, _DROP, _PASS]


def _attach_filter(endpoint: socket.socket, program: list[_Instruction]) -> None:
    code = array.array("B", b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    pointer, _ = code.buffer_info()
    endpoint.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), pointer))


ICMP_INTERVAL_S = 1.0
"""Time after which a client may receive another message (`icmp_ratelimit` in Linux)."""

ICMP_BURST = 6
"""Maximum number of messages in a burst (`XRLIM_BURST_FACTOR` in Linux).

The limit for all clients together, 1000 messages per second, is not simulated.
"""


class TokenBucket:
    """The limit of ICMP messages to one address, as in Linux (`inet_peer_xrlim_allow`); starts full."""

    def __init__(self, now_s: float, *, interval_s: float = ICMP_INTERVAL_S, burst: int = ICMP_BURST):
        self._interval_s, self._limit_s = interval_s, burst * interval_s
        self._saved_s, self._updated_s = self._limit_s, now_s

    def take(self, now_s: float) -> None:
        """Take a token; if none is left, borrow the next one."""
        self._saved_s = self._saved_at(now_s) - self._interval_s
        self._updated_s = now_s

    def ready_s(self, now_s: float) -> float:
        """Return the time from which a token is available; `now_s` if one is available now."""
        return now_s + max(0.0, self._interval_s - self._saved_at(now_s))

    def is_full(self, now_s: float) -> bool:
        """Return whether the bucket has the maximum number of tokens."""
        return self._saved_at(now_s) >= self._limit_s

    def _saved_at(self, now_s: float) -> float:
        return min(self._saved_s + now_s - self._updated_s, self._limit_s)


class RefusalLimit:
    """Limits how often each client is refused.

    Parameters
    ----------
    ignore
        Called with an address and the time until which it must ignore attempts.
    """

    def __init__(self, ignore: Callable[[Address, float], None], clock: Callable[[], float] = time.monotonic):
        self._ignore, self._clock = ignore, clock
        self._buckets: dict[str, TokenBucket] = {}
        self._clients: defaultdict[Address, set[str]] = defaultdict(set)
        self._addresses: frozenset[Address] = frozenset()
        self._refused = RefusedConnections(self.count_refusal)

    def watch(self, addresses: Collection[Address]) -> None:
        """Replace the addresses that refuse all attempts."""
        self._addresses = frozenset(addresses)
        for address in self._clients.keys() - self._addresses:
            del self._clients[address]
        now_s = self._clock()
        self._buckets = {ip: bucket for ip, bucket in self._buckets.items() if not bucket.is_full(now_s)}
        self._refused.watch({ip for ip, _ in self._addresses})

    def count_refusal(self, client_ip: str, address: Address) -> None:
        """Count a refused attempt; if the client has no token left, all addresses that it has tried ignore attempts."""
        if address not in self._addresses:
            return
        now_s = self._clock()
        bucket = self._buckets.setdefault(client_ip, TokenBucket(now_s))
        bucket.take(now_s)
        self._clients[address].add(client_ip)
        ready_s = bucket.ready_s(now_s)
        if ready_s > now_s:
            for tried_address, clients in self._clients.items():
                if client_ip in clients:
                    self._ignore(tried_address, ready_s)

    def close(self) -> None:
        self._refused.close()
