"""Controls that look at one kind of sign."""

from __future__ import annotations

from faultset.baselines.methods.controls import LoudestLog

SECOND = 1_000_000_000


def test_loudest_log_hears_levels_and_words(example, faulty) -> None:
    label = example.label(faulty)
    ranking = LoudestLog().localize(example.view(faulty), int(label.inject_start_ns) + 4 * SECOND)
    assert ranking.ordered == (label.targets[0],)
    assert len(ranking.pods) == 1
    assert next(iter(ranking.pods)).startswith(f"{label.targets[0]}-")
