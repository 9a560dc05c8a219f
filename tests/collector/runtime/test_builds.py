"""Builds and their defects."""

from __future__ import annotations

from faultset.collector.runtime.builds import FAILING, GOOD, KEEPING, LEAKING, MISDIALLING, SLOWED, defects


def test_tags_are_good_or_have_one_defect() -> None:
    tags = [*GOOD, *MISDIALLING, *LEAKING, *SLOWED, *FAILING, *KEEPING]
    assert len(tags) == len(set(tags))
    assert all((defects(tag).waiting_share, defects(tag).wait_s) == given for tag, given in SLOWED.items())
    assert all(defects(tag).failing_share == share > 0 for tag, share in FAILING.items())
    kept = {tag: (found.pool_size, found.kept_share, found.kept_s) for tag in KEEPING if (found := defects(tag))}
    assert kept == dict(KEEPING)
    assert defects("1.0.0") == defects("9.9.9")
    assert all(defects(tag).database_port == port != 27017 for tag, port in MISDIALLING.items())
    assert all(defects(tag).leak_mib_s == rate > 0 for tag, rate in LEAKING.items())
