"""The shipped checks detect violations of the contract and pass correct baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faultset.baselines.contract import Detection, Ranking, TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec
from faultset.baselines.testing import CHECKS, BaselineTrial, check_baseline
from faultset.core.errors import UsageError
from faultset.datasets.views import read_frame, read_table


def spec_of(cls: type, task: Any = "localization", **more: Any) -> BaselineSpec:
    values: dict[str, Any] = {
        "name": "wrong",
        "title": "Wrong",
        "task": task,
        "paper": "None; a test",
        "kind": "rule",
        "tables": ("logs",),
        "factory": cls,
    }
    spec = BaselineSpec(**values | more)
    for attribute in ("name", "needs", "tables"):
        setattr(cls, attribute, getattr(spec, attribute))
    return spec


class Undecided(TrainingFreeBaseline):
    """Abstain."""

    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        return Ranking.abstain()


class ReadsMore(Undecided):
    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        read_table(episode, "spans", ("service",))
        return Ranking.abstain()


class AsksForThePlace(Undecided):
    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        assert episode.alarm_location is not None
        return Ranking.abstain()


class RowsRequired(Undecided):
    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        logs = read_frame(episode, "logs", ("time", "service"))
        return Ranking.of({logs["service"].iloc[0]: 1.0}, episode.services)


class Inventive(Undecided):
    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        return Ranking.of(dict.fromkeys(episode.services, 1.0), episode.services)


class Strange(Undecided):
    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        return Ranking(scores={"who-is-this": 1.0})


class Forgetful(Undecided):
    def fit(self, healthy: Any) -> Any:
        return None


class Trained(Undecided):
    def fit(self, healthy: Any) -> Any:
        self.services_ = healthy[0].services
        return self

    def localize(self, episode: Any, alarm_ns: int) -> Ranking:
        assert self.services_
        return Ranking.abstain()


class LooksAhead(TrainingFreeBaseline):
    def detect(self, episode: Any) -> Detection:
        start_ns, end_ns = episode.reference[1], episode.window[1]
        times = np.arange(start_ns + 1_000_000_000, end_ns + 1, 1_000_000_000)
        lines = read_frame(episode, "logs", ("time",))["time"].to_numpy()
        return Detection.from_scores(times, np.full(len(times), float(len(lines))), 0.5)


def test_an_abstaining_localizer_meets_the_contract() -> None:
    check_baseline(spec_of(Undecided))


def test_fit_is_called_before_an_answer() -> None:
    CHECKS["repeatability"](BaselineTrial(spec_of(Trained)))


@pytest.mark.parametrize(
    ("cls", "task", "check", "sentence"),
    [
        (ReadsMore, "localization", "declared tables", "wrong: reads spans; add that to tables"),
        (AsksForThePlace, "localization", "declared tables", "wrong: reads alarm_location; add that to needs"),
        (Inventive, "localization", "no evidence", "must abstain if all tables are empty"),
        (Strange, "localization", "repeatability", "only candidates may be ranked"),
        (Forgetful, "localization", "repeatability", '"fit" returns None'),
        (LooksAhead, "detection", "no look-ahead", "later data change earlier scores"),
        (LooksAhead, "detection", "detection accuracy", "scores are not higher after the onset"),
    ],
)
def test_a_violation_is_detected_and_named(cls: type, task: str, check: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        CHECKS[check](BaselineTrial(spec_of(cls, task)))


def test_an_error_on_an_empty_table_is_not_swallowed() -> None:
    with pytest.raises(IndexError):
        CHECKS["missing tables"](BaselineTrial(spec_of(RowsRequired)))


def test_an_incomplete_registration_is_named() -> None:
    with pytest.raises(AssertionError, match="broken rule: title and paper are not empty"):
        CHECKS["registration"](BaselineTrial(spec_of(Undecided, paper="")))


def test_other_classes_and_unknown_checks_are_rejected() -> None:
    with pytest.raises(UsageError, match="is not a baseline"):
        check_baseline(Undecided)
    with pytest.raises(UsageError, match=r"unknown checks \['luck'\]"):
        check_baseline("random", skip=("luck",))
