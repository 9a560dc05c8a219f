"""Folds: who learns from what, without any cluster in both subsets."""

from __future__ import annotations

from collections import Counter

import pytest

from faultset.core.errors import UsageError
from faultset.datasets.training.folds import SCHEMES, Fold, cross_folds, folds_of_split
from faultset.evaluators.results.truth import FaultTruth, Truth
from tests.evaluators.conftest import make_healthy, make_truth


def campaign() -> list[Truth]:
    """Two applications, three faults on two targets each, three repetitions, and healthy episodes between them."""
    truths = []
    for app in ("shop", "bank"):
        for repeat in range(3):
            for fault in ("crash", "leak", "loss"):
                for target in ("a", "b"):
                    episode = f"{app}-{fault}-{target}-{repeat}"
                    truths.append(make_truth(episode, app=app, fault=fault, targets=(target,)))
            truths += [make_healthy(f"{app}-healthy-{repeat}-{n}", app=app) for n in range(2)]
    return truths


TRUTHS = campaign()
OF = {truth.episode: truth for truth in TRUTHS}


def folds(name: str | None) -> list[Fold]:
    return folds_of_split(name, {}, TRUTHS)


@pytest.mark.parametrize("name", [None, *SCHEMES])
def test_no_cluster_is_in_both_subsets_of_a_fold(name):
    for fold in folds(name):
        trained = {OF[e].cluster for e in fold.healthy_train + fold.faulty_train}
        assert not trained & {OF[e].cluster for e in fold.test}


@pytest.mark.parametrize("name", [None, *SCHEMES])
def test_every_episode_is_scored_once_in_each_division(name):
    times = Counter(e for fold in folds(name) for e in fold.test)
    assert times.keys() == OF.keys()
    assert set(times.values()) == {3 if name == "cross-5x3" else 1}


@pytest.mark.parametrize("name", [None, *SCHEMES])
def test_what_is_healthy_is_learned_apart_from_what_has_a_fault(name):
    for fold in folds(name):
        assert not any(OF[e].faulty for e in fold.healthy_train)
        assert all(OF[e].faulty for e in fold.faulty_train)
        assert fold.healthy_train


def test_halves_have_as_many_episodes_of_each_application_and_each_fault():
    counts = [Counter((OF[e].app, OF[e].fault) for e in fold.test) for fold in folds(None)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("name", "value_of"),
    [
        ("leave-one-fault-out", lambda truth: truth.fault),
        ("leave-one-target-out", lambda truth: (truth.app, truth.targets)),
        ("leave-one-app-out", lambda truth: truth.app),
    ],
)
def test_what_is_left_out_is_never_learned_from(name, value_of):
    found = folds(name)
    values = {value_of(truth) for truth in TRUTHS if truth.faulty}
    assert len(found) == len(values)
    for fold in found:
        tested = {value_of(OF[e]) for e in fold.test if OF[e].faulty}
        assert len(tested) == 1
        assert not tested & {value_of(OF[e]) for e in fold.faulty_train}


def test_an_application_that_is_left_out_takes_its_healthy_episodes_along():
    for fold in folds("leave-one-app-out"):
        assert len({OF[e].app for e in fold.test}) == 1
        assert not {OF[e].app for e in fold.test} & {OF[e].app for e in fold.healthy_train}


def test_repeated_divisions_differ_and_are_numbered_apart():
    found = folds("cross-5x3")
    assert len({fold.number for fold in found}) == len(found) == 15
    divisions = [{frozenset(fold.test) for fold in found[start : start + 5]} for start in (0, 5, 10)]
    assert divisions[0] != divisions[1] != divisions[2]
    assert found == folds("cross-5x3")


def test_repetitions_of_one_problem_alone_cannot_be_divided_with_labels_in_both_subsets():
    truths = [make_truth(f"e{n}") for n in range(4)]
    (only,) = cross_folds(truths)
    assert (only.test, only.faulty_train) == (("e0", "e1", "e2", "e3"), ())


@pytest.mark.parametrize("name", ["cross-1", "cross-5x0"])
def test_fewer_than_two_folds_are_refused(name):
    with pytest.raises(UsageError, match="at least two folds"):
        folds(name)


def test_a_dataset_of_one_application_cannot_leave_it_out():
    with pytest.raises(UsageError, match="at least two values of app, but there are 1"):
        folds_of_split("leave-one-app-out", {}, [truth for truth in TRUTHS if truth.app == "shop"])


def test_an_unknown_scheme_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="leave-one-fault-out"):
        folds("leave-one-faults-out")


def test_a_published_split_of_the_same_name_comes_first():
    split = {"cross": {"train": ["shop-healthy-0-0"], "test": ["shop-crash-a-0"]}}
    (fold,) = folds_of_split("cross", split, TRUTHS)
    assert (fold.healthy_train, fold.faulty_train, fold.test) == (("shop-healthy-0-0",), (), ("shop-crash-a-0",))


def several(episode: str, **faults: str) -> Truth:
    pairs = tuple(FaultTruth(fault, target, "Application", "Code Defect") for fault, target in faults.items())
    return make_truth(episode, fault=" + ".join(faults), targets=tuple(faults.values()), faults=pairs)


CONCURRENT = [
    several("e0", crash="a", leak="b"),
    make_truth("e1", fault="crash", targets=("a",)),
    several("e2", leak="b", loss="c"),
    several("e3", loss="d", crash="c"),
    make_truth("e4", fault="kill", targets=("a",)),
    *(make_healthy(f"h{number}") for number in range(4)),
]


def test_what_shares_one_of_several_faults_is_on_one_side():
    for fold in folds_of_split(None, {}, CONCURRENT):
        assert len({"e0", "e1", "e2"} & {*fold.test}) in (0, 3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("leave-one-fault-out", lambda truth: {problem[1] for problem in truth.problems}),
        ("leave-one-target-out", lambda truth: set(truth.targets)),
    ],
)
def test_no_part_of_what_is_left_out_is_learned_from(name, values):
    of = {truth.episode: truth for truth in CONCURRENT}
    tested: Counter[str] = Counter()
    for fold in folds_of_split(name, {}, CONCURRENT):
        asked = set().union(*(values(of[episode]) for episode in fold.test))
        assert not any(asked & values(of[episode]) for episode in fold.faulty_train)
        tested.update(fold.test)
    assert tested == dict.fromkeys(of, 1)
