"""Properties that give the answer away are found; properties drawn alike for all episodes are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.datasets.checks import shortcuts
from faultset.datasets.checks.shortcuts import Counts, Shortcut, measure_shortcuts
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version
from tests.datasets.recorded_samples import at, context, incident, samples

SERVICES = tuple("abcdefgh")


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_TREE_COUNT", 20)


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
    (detection,), (localization,) = shortcuts._score_detection(drawn, 0), shortcuts._score_localization(drawn, 0)
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
    localization = scores(cases(lambda faulty, rng: {"1.0.0": 1.0}))[1]
    assert localization.score == localization.chance == 1 / 8


def test_too_few_clusters_give_no_score():
    few = cases(lambda faulty, rng: {})[:6]
    assert shortcuts._score_detection(few, 0) == shortcuts._score_localization(few, 0) == []


def pods(tags: Sequence[tuple[int, str]]) -> pa.Table:
    """Return states of a pod of geo every ten seconds from each of some times on, with these image tags."""
    rows = []
    for (first_s, tag), (last_s, _) in zip(tags, [*tags[1:], (tags[0][0] + 590, "")], strict=True):
        state = json.dumps({"ready": True, "containers": [{"image": f"geo:{tag}"}]})
        rows += [(at(second), f"geo-{tag}", state) for second in range(first_s, last_s, 10)]
    times, names, states = zip(*rows, strict=True)
    words = {"service": "geo", "kind": "Pod"}
    return pa.table(
        {
            "time": pa.array(times, pa.timestamp("ns", "UTC")),
            "name": pa.array(names),
            "state": pa.array(states),
            "data": pa.array([None] * len(rows), pa.string()),
            **{name: pa.array([word] * len(rows)) for name, word in words.items()},
        }
    )


def test_services_without_a_new_image_are_no_candidates_of_the_tags() -> None:
    rebuilt = [shortcuts._Pod("geo", frozenset({tag}), None) for tag in ("1.0.0", "1.0.1")]
    assert shortcuts._list_rebuilt([*rebuilt, shortcuts._Pod("rate", frozenset({"1.0.0"}), None)]) == ["geo"]


def test_recordings_are_cut_and_a_tag_that_only_faulty_times_have_is_a_leak(tmp_path: Path) -> None:
    truth: dict[int, dict[str, Any]] = {
        number: {"incidents": [incident(str(number), 600 * number + 300, 100)]} for number in range(6)
    }
    writer = RecordingWriter(tmp_path, context())
    for number in truth:
        first_s = 600 * number
        states = [(first_s + 5, "1.0.0"), (first_s + 310, "1.0.1"), (first_s + 420, "1.0.0")]
        tables = {"metrics": [samples(first_s, first_s + 600)], "objects": [pods(states)]}
        writer.append(at(first_s), at(first_s + 600), tables, truth=truth[number])
    create_version(tmp_path, provenance={})
    steps: list[tuple[int, int]] = []
    found = measure_shortcuts(open_dataset(tmp_path), progress=lambda *counts: steps.append(counts))
    tags = {shortcut.task: shortcut for shortcut in found if shortcut.properties == "image tags"}
    assert tags["detection"].leaks
    assert tags["detection"].score == 1
    assert tags["detection"].episodes > 6 + 12
    assert steps[-1] == (1, 1)
