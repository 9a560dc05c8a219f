"""What is looked at on this machine before episodes run on it."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.local import host


@pytest.mark.parametrize(("load", "says_more"), [(0.3, False), (4000.5, True)])
def test_the_load_of_other_work_is_told_and_is_no_obstacle(
    load: float, says_more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.os, "getloadavg", lambda: (load, 0.0, 0.0))
    row = next(one for one in host.check_machine() if one.check == "other work")
    assert row.ok
    assert row.found.startswith(f"load average {load:.1f}")
    assert ("fewer episodes run concurrently" in row.found) == says_more
