"""Builds and their defects."""

from __future__ import annotations

from faultset.collector.runtime.builds import GOOD, LEAKING, MISDIALLING, defects


def test_tags_are_good_or_have_one_defect() -> None:
    assert not GOOD & (set(MISDIALLING) | set(LEAKING))
    assert not set(MISDIALLING) & set(LEAKING)
    assert defects("1.0.0") == defects("9.9.9")
    assert all(defects(tag).database_port == port != 27017 for tag, port in MISDIALLING.items())
    assert all(defects(tag).leak_mib_s == rate > 0 for tag, rate in LEAKING.items())
