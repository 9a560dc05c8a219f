"""Streams of one kind of signal of each service."""

from __future__ import annotations

import numpy as np

from faultset.baselines.features.held_out import (
    read_held_out,
)
from faultset.baselines.features.role_streams import service_roles, services, system_signals


def test_streams_hold_the_largest_deviation_of_their_series(example, faulty) -> None:
    view = example.view(faulty)
    found = read_held_out(view)
    assert found is not None
    role = [view.catalogue.role_of(metric) for _, metric in found.windows.series]
    owner = found.windows.services
    streams = service_roles(view, found)
    assert streams.names == tuple(sorted(set(zip(owner, role, strict=True))))
    for column, name in enumerate(streams.names):
        own = [place for place, pair in enumerate(zip(owner, role, strict=True)) if pair == name]
        np.testing.assert_allclose(streams.values[:, column], np.log1p(np.abs(found.z[:, own]).max(axis=1)))
    assert len(services(found).names) == len(set(owner))
    assert {signal for _, signal in system_signals(view, found).names} <= {
        "resources",
        "network",
        "traffic",
        "quality",
        "state",
    }
    assert len(streams.both) == len(streams.normal) + len(streams.values)
