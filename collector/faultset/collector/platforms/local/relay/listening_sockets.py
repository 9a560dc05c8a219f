"""Ask the kernel whether a connection to an address would be accepted, without making one."""

from __future__ import annotations

import errno
import functools
import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_TCP_LISTEN = 10
_HEADER = struct.Struct("=IHHII")
_SELECTION = struct.Struct("=BBBBI")
_ERROR = struct.Struct("=i")
_ALL_STATES = 0xFFFFFFFF
_PROBE_TIMEOUT_S = 0.05


class ListeningSockets:
    """Looks up listening TCP sockets by address.

    A look-up in the kernel's own table (inet_diag, open to every user) takes microseconds and leaves no trace in
    the process that listens. Where the kernel does not offer it, a short connection is made instead.
    """

    def __init__(self, *, silent: bool = True):
        self._netlink: socket.socket | None = None
        if silent:
            try:
                self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
                # The kernel answers within send(), so a receive never has to wait.
                self._netlink.setblocking(False)
                _ask(self._netlink, "127.0.0.1", 1)
            except (OSError, AttributeError, struct.error):
                self.close()

    @property
    def silent(self) -> bool:
        """Whether looking does not disturb the process that listens."""
        return self._netlink is not None

    def accepting(self, ip: str, port: int) -> bool:
        """Say whether some process listens at an address."""
        if self._netlink is not None:
            return _ask(self._netlink, ip, port)
        with socket.socket() as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            return probe.connect_ex((ip, port)) == 0

    def close(self) -> None:
        """Close the connection to the kernel."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


def _ask(netlink: socket.socket, ip: str, port: int) -> bool:
    netlink.send(_request(ip, port))
    answer = netlink.recv(1 << 12)
    if _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR:
        code = -_ERROR.unpack_from(answer, _HEADER.size)[0]
        if code == errno.ENOENT:
            return False
        raise OSError(code, "the kernel does not look up sockets")
    return answer[_HEADER.size + 1] == _TCP_LISTEN


@functools.lru_cache(maxsize=4096)
def _request(ip: str, port: int) -> bytes:
    source = socket.inet_aton(ip) + bytes(12)
    anyone, any_interface, any_cookie = bytes(16), bytes(4), b"\xff" * 8
    ports = struct.pack("!HH", port, 0)
    body = _SELECTION.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
    body += ports + source + anyone + any_interface + any_cookie
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body
