"""Names of services to addresses: a hosts file kept by the platform, or DNS."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping


class UnknownHostError(OSError):
    """A name that no service has."""

    def __init__(self, host: str):
        super().__init__(f"there is no host {host}")
        self.host = host


class Names:
    """Resolves the names of services.

    Parameters
    ----------
    hosts:
        JSON file of names and addresses, read again whenever it has changed; DNS is asked without one.
    instead:
        Hosts that are looked up in place of names.
    """

    def __init__(self, hosts: str | None, instead: Mapping[str, str] | None = None):
        self._hosts = hosts
        self.instead: Mapping[str, str] = instead or {}
        self._version: tuple[int, int] | None = None
        self._known: dict[str, str] = {}
        self.last: dict[str, str] = {}

    async def address(self, name: str) -> str:
        """Return the IPv4 address of a name; raise UnknownHostError, or OSError when it cannot be looked up."""
        given, name = name, self.instead.get(name, name)
        if self._hosts is not None:
            address = self._from_file(name)
        elif name.replace(".", "").isdigit():
            address = name
        else:
            address = await _from_dns(name)
        self.last[given] = address
        return address

    def _from_file(self, name: str) -> str:
        assert self._hosts is not None
        status = os.stat(self._hosts)
        version = (status.st_mtime_ns, status.st_ino)
        if version != self._version:
            with open(self._hosts, encoding="utf-8") as file:
                self._known = json.load(file)
            self._version = version
        if name not in self._known:
            raise UnknownHostError(name)
        return self._known[name]


async def _from_dns(name: str) -> str:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            raise UnknownHostError(name) from None
        raise OSError(f"lookup {name}: {error.strerror}") from None
    return str(found[0][4][0])
