"""Connections from the pod's own address, by libraries that have no option for it."""

from __future__ import annotations

import asyncio
from typing import Any


class SourceAddressLoop:
    """An event loop whose connections are made from one address."""

    def __init__(self, loop: asyncio.AbstractEventLoop, local: str):
        self._loop, self._local = loop, local

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        """Return what connects."""
        return self._loop.create_connection(factory, host, port, local_addr=(self._local, 0), **options)
