"""Times as Kubernetes writes them."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.observation.objects import parse_rfc3339_ns, rfc3339_ns

SECOND = 1_000_000_000


@pytest.mark.parametrize("time_ns", [0, 1_700_000_000_123_456_789, 951_782_400 * SECOND, 4_102_444_799_999_999_999])
def test_stamps_survive_a_round_trip(time_ns):
    assert parse_rfc3339_ns(rfc3339_ns(time_ns)) == time_ns
