"""Log events of a request."""

from __future__ import annotations

import pyarrow as pa

from faultset.baselines.features.events import (
    identify_statements,
)


def test_a_statement_is_identified_by_its_place_or_its_template() -> None:
    lines = ["09:01:02.5 WARN a.b.Shop#31 TraceID: x [sold 3]", "cmd/geo/main.go:38 > up", "sold 3", "sold 12", None]
    code, names = identify_statements(pa.chunked_array([pa.array(lines, pa.string())]))
    assert [names[number] for number in code][:4] == ["a.b.Shop#31", "cmd/geo/main.go:38", "sold <*>", "sold <*>"]


def test_only_the_first_line_of_a_stack_trace_counts() -> None:
    lines = [f"boom {number}\n  at x.py:{number}" for number in range(4)]
    code, _ = identify_statements(pa.chunked_array([lines]))
    assert len(set(code.tolist())) == 1
