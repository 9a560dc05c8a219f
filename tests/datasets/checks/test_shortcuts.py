"""Properties that give the answer away are found; properties drawn alike for all episodes are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from faultset.datasets.checks import shortcuts
from faultset.datasets.checks.shortcuts import Counts, Shortcut

SERVICES = tuple("abcdefgh")


def cases(tag: Callable[[bool, np.random.Generator], Counts]) -> list[shortcuts._Case]:
    """Sixty episodes, every second one faulty, each a cluster of its own, with one property of each service."""
    rng = np.random.default_rng(0)
    drawn = []
    for number in range(60):
        faulty, target = number % 2 == 0, SERVICES[number % len(SERVICES)]
        by_service = {service: tag(faulty and service == target, rng) for service in SERVICES}
        whole: Counts = {}
        for counts in by_service.values():
            whole |= counts
        drawn.append(
            shortcuts._Case(
                cluster=(str(number),),
                faulty=faulty,
                targets=frozenset({target} if faulty else ()),
                services=SERVICES,
                whole={"image tags": whole},
                by_service={"image tags": by_service},
            )
        )
    return drawn


def scores(drawn: list[shortcuts._Case]) -> tuple[Shortcut, Shortcut]:
    (detection,), (localization,) = shortcuts._detection(drawn, 0), shortcuts._localization(drawn, 0)
    return detection, localization


def test_a_tag_that_only_faulty_services_have_is_a_leak_of_both_answers():
    for shortcut in scores(cases(lambda faulty, rng: {"1.0.1": 1.0} if faulty else {"1.0.0": 1.0})):
        assert shortcut.leaks
        assert shortcut.score > 0.9


def test_tags_drawn_alike_for_all_services_are_no_leak():
    for shortcut in scores(cases(lambda faulty, rng: {f"1.0.{rng.integers(3)}": 1.0})):
        assert not shortcut.leaks
        assert abs(shortcut.score - shortcut.chance) < 0.2


def test_the_chance_of_localization_is_that_of_a_random_service():
    assert scores(cases(lambda faulty, rng: {}))[1].score == scores(cases(lambda faulty, rng: {}))[1].chance == 1 / 8


def test_too_few_clusters_give_no_score():
    few = cases(lambda faulty, rng: {})[:6]
    assert shortcuts._detection(few, 0) == shortcuts._localization(few, 0) == []
