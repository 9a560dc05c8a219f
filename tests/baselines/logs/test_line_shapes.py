"""Lines counted by how they begin."""

from __future__ import annotations

from typing import Any

from faultset.baselines.logs.templates import shape_counts
from tests.baselines.conversations import SECOND, START, spoken


def test_lines_count_by_service_and_by_how_they_begin() -> None:
    def line(second: float, service: str, message: str) -> dict[str, Any]:
        time = START + round(second * SECOND)
        return {"time": time, "service": service, "pod": "p", "container": "c", "message": message}

    rows = [
        line(0.5, "cart", "got item 17"),
        line(0.6, "cart", "got item 4"),
        line(1.5, "cart", "got item 9"),
        line(1.5, "db", "got item 9"),
        line(39.9, "db", "connection 0x7f3a lost"),
        line(50.0, "db", "too late"),
        line(3.0, "stranger", "hello"),
    ]
    found = shape_counts(spoken(logs=rows), 1.0)
    assert found.shapes == (("cart", "got item <*>"), ("db", "connection <*> lost"), ("db", "got item <*>"))
    assert found.counts[:2].tolist() == [[2.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    assert found.counts[39].tolist() == [0.0, 1.0, 0.0]
    assert shape_counts(spoken(), 1.0).counts.shape == (40, 0)
