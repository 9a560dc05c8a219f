"""A source with a new table: one probe of the application's entry per interval."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

from faultset.collector.sources.contract import SampledSource
from faultset.datasets.format.schemas import AddedColumn


class Probes(SampledSource):
    """Record whether the entry accepts a TCP connection, and how long it takes."""

    table = "probes"
    columns = (
        AddedColumn(name="service", type="string", meaning="the Service that was probed"),
        AddedColumn(name="connect_s", type="double", unit="s", nullable=True, meaning="time; null if it failed"),
    )

    def sample(self) -> Iterator[dict[str, Any]]:
        """Connect to the entry once."""
        service, port = self.target.platform.app.entry
        address = self.target.platform.get("Service", service)["spec"]["clusterIP"]
        began = time.monotonic()
        try:
            socket.create_connection((address, port), timeout=1.0).close()
        except OSError:
            yield {"service": service, "connect_s": None}
        else:
            yield {"service": service, "connect_s": time.monotonic() - began}
