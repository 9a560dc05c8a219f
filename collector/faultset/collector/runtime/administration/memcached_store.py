"""The administrator of a memcached, who has next to nothing to do: it knows no accounts, locks, queries or files."""

from __future__ import annotations

from typing import Any

from faultset.collector.runtime.administration.store_administration import StoreAdministration


class MemcachedAdministration(StoreAdministration):
    """See `StoreAdministration`."""

    system = "memcached"

    def state(self, stream: str | None) -> dict[str, Any]:
        """Return that nothing is refused: nothing can be."""
        return {"write_refused": "", "consume_refused": "", "file_limit": None}
