"""Thresholds are set on training episodes by models that were not fitted on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.baselines.contract import Detection, Ranking, TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec
from faultset.core.errors import UsageError
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.training.folds import Fold, cross_folds
from faultset.evaluators import evaluate
from faultset.evaluators.execution import plan
from faultset.evaluators.execution.plan import build_variants
from faultset.evaluators.execution.settings import EvaluationSettings, inner_folds


class Recalls:
    """Scores an episode by whether it was fitted on it, as a nearest neighbour does: 0 if so, else its place."""

    name: str = "recalls"
    needs: frozenset[str] = frozenset()
    tables: tuple[str, ...] = ("metrics",)

    def __init__(self) -> None:
        self.known: frozenset[str] = frozenset()
        self.ends: dict[str, tuple[int, int]] = {}

    def fit(self, healthy: Sequence[Any]) -> Recalls:
        self.known = frozenset(view.episode for view in healthy)
        self.ends = {view.episode: (view.reference[1], view.window[1]) for view in healthy}
        latest = [view.metrics()["time"].max().value for view in healthy]
        assert all(last < view.window[1] for last, view in zip(latest, healthy, strict=True))
        return self

    def detect(self, episode: Any) -> Detection:
        start, end = episode.reference[1], episode.window[1]
        times = np.arange(start, end, 1_000_000_000)
        score = 0.0 if episode.episode in self.known else 1.0
        return Detection.from_scores(times, np.full(len(times), score), None)


def spec_of(cls: type, **changes: Any) -> BaselineSpec:
    values: dict[str, Any] = {
        "name": cls.__name__.lower(),
        "task": "detection",
        "tables": ("metrics",),
        "factory": cls,
        "own_threshold": False,
    }
    return BaselineSpec(**(values | changes))


@pytest.fixture(scope="module")
def eight_episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "eight"
    write_example_dataset(root, episodes=8, seed=2, baseline_s=20, fault_s=20)
    return root


def test_every_training_episode_without_a_fault_is_asked_once_by_a_model_that_never_saw_its_cluster(make):
    truths = [make.healthy(f"h{i}") for i in range(7)]
    truths += [make.truth(f"f{i}", fault=f"fault{i // 2}") for i in range(6)]
    by_id = {truth.episode: truth for truth in truths}
    for fold in cross_folds(truths, 2):
        parts = inner_folds(fold, by_id)
        assert sorted(e for part in parts for e in part.test) == sorted(fold.healthy_train)
        for part in parts:
            used = {by_id[e].cluster for e in (*part.healthy_train, *part.faulty_train)}
            assert part.healthy_train
            assert not used & {by_id[e].cluster for e in part.test}
            assert not {*part.healthy_train, *part.faulty_train} & set(fold.test)


def test_one_training_episode_without_a_fault_sets_no_threshold(make):
    fold = Fold(number=0, healthy_train=("h1",), faulty_train=("f1",), test=("f2",))
    assert inner_folds(fold, {"h1": make.healthy("h1"), "f1": make.truth("f1")}) == []


def test_a_detector_that_learns_gets_a_threshold_from_episodes_it_was_not_fitted_on(eight_episodes: Path):
    done = evaluate(eight_episodes, [spec_of(Recalls)], tasks=("detection",), workers=2)
    calibration = [row for row in done.rows if row.protocol == "calibration"]
    assert calibration
    assert {max(row.answer["scores"]) for row in calibration} == {1.0}
    tested = [row for row in done.rows if row.protocol == "detected"]
    assert {row.status for row in tested} == {"ok"}
    # every unseen episode scores 1: with a threshold of 0, set where the model was fitted, it alarms on all of them
    assert {row.answer["threshold"] for row in tested} == {1.0}
    assert all(row.alarm_ns is None for row in tested)


def test_without_enough_training_episodes_such_a_detector_has_no_answer(example_dataset: Path):
    done = evaluate(example_dataset, [spec_of(Recalls)], tasks=("detection",), workers=1, thresholds=("reference",))
    assert {(row.status, row.alarm_ns) for row in done.rows if row.protocol == "detected"} == {("invalid", None)}
    assert all("too few" in row.reason for row in done.rows)


def test_references_of_fault_episodes_end_where_they_stop_being_known_healthy(eight_episodes: Path):
    class Remembers(Recalls):
        def detect(self, episode: Any) -> Detection:
            found = super().detect(episode)
            cut = sum(reference == end for reference, end in self.ends.values())
            return Detection.from_scores(found.times_ns, np.full(len(found.times_ns), float(cut)), 0.5)

    def scores(**changes: Any) -> set[float]:
        spec = spec_of(Remembers, own_threshold=True, **changes)
        done = evaluate(eight_episodes, [spec], tasks=("detection",), thresholds=("reference",), workers=2)
        assert {row.status for row in done.rows} == {"ok"}, [row.reason for row in done.rows]
        return {max(row.answer["scores"]) for row in done.rows}

    assert scores(learns_from_references=False) == {0.0}
    assert min(scores(learns_from_references=True)) >= 1.0


def test_localizers_cannot_be_given_an_alarm_that_is_not_decided_yet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan, "get_baseline", lambda name: spec_of(Recalls, name=name))
    localizer = spec_of(Recalls, name="where", task="localization", own_threshold=True)
    with pytest.raises(UsageError, match="choose another detector"):
        plan.build_runs([localizer], EvaluationSettings(alarm_detector="recalls"))


class Picks(TrainingFreeBaseline):
    """Names the service at a position of the list."""

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        return Ranking(scores={episode.services[self.position]: 1.0})


class OpenSpec(BaselineSpec):
    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        return {"position=1": {"position": 1}}


def test_a_method_runs_with_the_settings_that_its_paper_leaves_open(example_dataset: Path):
    spec = OpenSpec(name="picks", task="localization", tables=("metrics",), factory=Picks)
    done = evaluate(example_dataset, [spec, *build_variants(spec)], protocol="oracle", workers=1)
    services = {row.baseline: next(iter(row.ranking)) for row in done.rows}
    assert services.keys() == {"picks", "picks[position=1]"}
    assert len(set(services.values())) == 2
    (entry,) = next(table for table in done.tables if table.task == "localization").entries
    assert entry.settings_range is not None
    assert entry.settings_range.settings == 2
