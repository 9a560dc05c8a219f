"""Builds: which tag has which defect differs from episode to episode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from scipy import stats

from faultset.collector.runtime.builds import (
    DELAYS,
    FAILURES,
    HEALTHY,
    HELD_CONNECTIONS,
    LEAKS,
    TAGS,
    WRONG_PORTS,
    draw_builds,
)
from faultset.collector.runtime.environment import read_defects

DEFECTS = (*WRONG_PORTS, *LEAKS, *DELAYS, *FAILURES, *HELD_CONNECTIONS)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_every_tag_is_healthy_or_has_a_defect_that_no_other_tag_has(seed: int) -> None:
    builds = draw_builds(seed)
    assert sorted([*builds.healthy, *builds.defects]) == sorted(TAGS)
    assert {builds.tag_with(defects) for defects in DEFECTS} == set(builds.defects)
    assert all(builds.defects_of(tag) == HEALTHY for tag in (*builds.healthy, "9.9.9"))


def test_a_tag_says_nothing_about_its_defect() -> None:
    seeds = range(1, 3001)
    healthy = Counter(tag for seed in seeds for tag in draw_builds(seed).healthy)
    assert stats.chisquare([healthy[tag] for tag in TAGS]).pvalue > 0.001
    for defects in (FAILURES[0], LEAKS[2]):
        tags = Counter(draw_builds(seed).tag_with(defects) for seed in seeds)
        assert stats.chisquare([tags[tag] for tag in TAGS]).pvalue > 0.001


def test_a_pod_learns_its_defects_from_the_mounted_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTSET_CREDENTIALS", str(tmp_path))
    tag = draw_builds(0).healthy[0]
    assert read_defects(tag) == HEALTHY
    seed = next(seed for seed in range(1, 100) if draw_builds(seed).defects_of(tag) != HEALTHY)
    (tmp_path / "build-seed").write_text(str(seed))
    assert read_defects(tag) == draw_builds(seed).defects[tag]
