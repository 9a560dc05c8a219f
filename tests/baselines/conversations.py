"""Episodes with explicit rows of three services that call each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from faultset.datasets.format.schemas import TABLES

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class Spoken:
    """Build an episode of 40 s from tables, with 24 s of reference."""

    def __init__(self, calls: tuple[tuple[str, str], ...] = (), **tables: list[dict[str, Any]]) -> None:
        self.calls = calls
        self.services = ("front", "cart", "db")
        self.window, self.reference = (START, START + 40 * SECOND), (START, START + 24 * SECOND)
        self.context = SimpleNamespace(workload_entry="front", resolution_s=1.0)
        self.episode = "spoken"
        self._rows = tables

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        return make()

    def table(self, name: str, columns: Any = None, filters: Any = None) -> pa.Table:
        schema = TABLES[name]
        rows = [{"episode": "spoken", "attributes": "{}", **row} for row in self._rows.get(name, [])]
        return pa.Table.from_pylist(rows, schema=schema).select(list(columns))


def span(second: float, service: str, kind: str, ms: float, peer: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "time": START + round(second * SECOND),
        "service": service,
        "reported_service": service,
        "peer_service": peer,
        "kind": kind,
        "operation": f"{peer or service}.Get",
        "duration_ns": round(ms * 1e6),
        "status": "unset",
        **more,
    }


def conversation(slow_from: int | None = None) -> list[dict[str, Any]]:
    """Return one request per second, front -> cart -> db, in which db becomes slow."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for second in range(40):
        extra = 400.0 * rng.uniform(0.8, 1.2) if slow_from is not None and second >= slow_from else 0.0
        values = rng.uniform(0.8, 1.2, 3)
        db = 5 * values[0] + extra
        cart = db + 10 * values[1]
        rows += [
            span(second + 0.1, "front", "server", cart + 20 * values[2]),
            span(second + 0.2, "front", "client", cart + 1, "cart"),
            span(second + 0.3, "cart", "server", cart),
            span(second + 0.4, "cart", "client", db, "db"),
        ]
    return rows


def linked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the rows of a conversation ids: each request is a trace in which every span calls the next."""
    return [
        row
        | {"trace_id": f"{place // 4:032x}", "span_id": f"{place:016x}"}
        | ({"parent_span_id": f"{place - 1:016x}"} if place % 4 else {})
        for place, row in enumerate(rows)
    ]


def spoken(**tables: Any) -> Any:
    return cast(Any, Spoken(**tables))
