from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from faultset.datasets.format.version_files import make_splits


def label(fault: str | None, targets: list[str], no_fault_kind: str | None = None) -> Any:
    problems = () if fault is None else ((fault, *sorted(targets)),)
    names = () if fault is None else (fault,)
    return SimpleNamespace(
        fault=fault, targets=tuple(targets), no_fault_kind=no_fault_kind, problems=problems, fault_names=names
    )


def several(**faults: str) -> Any:
    return SimpleNamespace(
        fault=" + ".join(faults),
        targets=tuple(faults.values()),
        no_fault_kind=None,
        problems=tuple(faults.items()),
        fault_names=tuple(faults),
    )


def campaign(repeats: int = 2, healthy: int = 6) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    for fault, target, number in itertools.product(("leak", "loss", "kill"), ("geo", "rate", "user"), range(repeats)):
        labels[f"{fault}-{target}-{number}"] = label(fault, [target])
    for number in range(healthy):
        labels[f"none-{number}"] = label(None, [], ("plain", "sham")[number % 2])
    return labels


def apps_of(labels, name="hotel"):
    return dict.fromkeys(labels, name)


def groups(labels, key, side):
    return {value for episode in side for value in key(labels[episode])}


KEYS = {
    "by-episode": lambda label: [(label.fault, *label.targets)] if label.fault else [],
    "by-fault": lambda label: [label.fault] if label.fault else [],
    "by-target": lambda label: label.targets,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", KEYS)
def test_no_group_is_in_both_subsets(name, seed):
    labels = campaign()
    split = make_splits(labels, apps_of(labels), seed=seed)[name]
    train, test = (groups(labels, KEYS[name], getattr(split, side)) for side in ("train", "test"))
    assert train
    assert test
    assert not train & test


@pytest.mark.parametrize("name", KEYS)
def test_every_episode_is_on_one_side(name):
    labels = campaign()
    split = make_splits(labels, apps_of(labels))[name]
    assert sorted(split.train + split.test) == sorted(labels)


@pytest.mark.parametrize("name", KEYS)
def test_episodes_without_a_fault_are_in_both_subsets_in_equal_numbers(name):
    labels = campaign(healthy=6)
    split = make_splits(labels, apps_of(labels))[name]
    healthy = [sum(labels[episode].fault is None for episode in getattr(split, side)) for side in ("train", "test")]
    assert healthy == [3, 3]


def test_by_episode_has_each_fault_in_both_subsets():
    labels = campaign()
    split = make_splits(labels, apps_of(labels))["by-episode"]
    for side in ("train", "test"):
        assert groups(labels, KEYS["by-fault"], getattr(split, side)) == {"leak", "loss", "kill"}


def test_the_same_seed_gives_the_same_splits_whatever_the_order():
    labels = campaign()
    turned = dict(reversed(labels.items()))
    assert make_splits(labels, apps_of(labels), seed=3) == make_splits(turned, apps_of(turned), seed=3)
    assert make_splits(labels, apps_of(labels), seed=3) != make_splits(labels, apps_of(labels), seed=4)


def test_faults_with_several_targets_keep_those_together():
    labels = {
        f"e{number}": label(f"f{number}", targets)
        for number, targets in enumerate([["a", "b"], ["b", "c"], ["c"], ["d"], ["e"]])
    }
    split = make_splits(labels, apps_of(labels))["by-target"]
    sides = {episode: side for side in ("train", "test") for episode in getattr(split, side)}
    assert sides["e0"] == sides["e1"] == sides["e2"]
    assert len(set(sides.values())) == 2


def test_a_grouped_split_needs_two_groups():
    labels = {"e1": label("leak", ["geo"])}
    assert list(make_splits(labels, apps_of(labels))) == ["by-episode"]


def test_several_apps_can_be_held_apart():
    labels = campaign()
    apps = {episode: ("hotel", "social")[number % 2] for number, episode in enumerate(labels)}
    split = make_splits(labels, apps)["by-app"]
    assert {apps[episode] for episode in split.train} & {apps[episode] for episode in split.test} == set()


def test_episodes_that_share_one_of_several_faults_stay_together():
    labels = {
        "e0": several(leak="a", loss="b"),
        "e1": label("leak", ["a"]),
        "e2": several(kill="c", loss="d"),
        "e3": label("kill", ["d"]),
    }
    splits = make_splits(labels, apps_of(labels))
    sides = {
        name: {episode: side for side in ("train", "test") for episode in getattr(split, side)}
        for name, split in splits.items()
    }
    assert sides["by-episode"]["e0"] == sides["by-episode"]["e1"]
    assert set(sides) == {"by-episode", "by-target"}, "all faults are connected by episodes"
    assert sides["by-target"]["e2"] == sides["by-target"]["e3"]
    assert set(sides["by-target"].values()) == {"train", "test"}
