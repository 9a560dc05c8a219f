"""Spans."""

from __future__ import annotations

import pytest

from faultset.collector.runtime.signals.tracing import Tracing, headers_of


@pytest.mark.parametrize(("sampling", "kept"), [(1.0, 200), (0.0, 0)])
def test_the_root_decides_for_a_whole_trace_whether_it_is_kept(sampling: float, kept: int) -> None:
    tracing = Tracing(sampling=sampling)
    roots = [tracing.server("HTTP GET /hotels", {}, {}) for _ in range(200)]
    assert sum(span.is_recording() for span, _ in roots) == kept
    for root, context in roots:
        client = tracing.client("/geo.Geo/Nearby", context, {})
        server, _ = tracing.server("/geo.Geo/Nearby", headers_of(client), {})
        assert client.is_recording() == server.is_recording() == root.is_recording()


def test_a_share_of_traces_is_about_that_share() -> None:
    tracing = Tracing(sampling=0.25)
    kept = sum(tracing.server("HTTP GET /hotels", {}, {})[0].is_recording() for _ in range(2000))
    assert 400 < kept < 600
