"""Finding, announcing and refusing baselines."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from faultset.baselines.api import registry
from faultset.baselines.api.contract import Detection, Ranking, Untrained
from faultset.core.errors import UsageError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> dict[str, registry.BaselineSpec]:
    """Announcements that are forgotten after the test."""
    found = dict(registry.baselines())
    monkeypatch.setattr(registry, "_announced", found)
    return found


def announce(name: str = "mine", task: str = "detection"):
    return registry.baseline(
        name,
        title="Mine",
        task=task,  # type: ignore[arg-type]
        paper="None",
        kind="control",
        tables=(),
        speed="instant",
    )


class Mine(Untrained):
    """Control: nothing."""

    def detect(self, episode: object) -> Detection:
        """Say no."""
        return Detection.silent()


def test_every_entry_point_is_a_baseline_of_that_name() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][registry.GROUP]
    found = registry.baselines()
    assert set(declared) == set(found)
    for name, target in declared.items():
        factory = found[name].factory
        assert target == f"{factory.__module__}:{factory.__qualname__}"


def test_the_named_baselines_of_the_paper_are_there() -> None:
    named = {spec.name: spec.task for spec in registry.baselines().values() if spec.kind == "named"}
    assert named == {"mksmc": "detection", "rmlad": "localization", "pdiagnose": "localization"}


def test_a_wrong_name_is_answered_with_the_closest() -> None:
    with pytest.raises(UsageError, match='unknown baseline "pdiagnos"; did you mean "pdiagnose"'):
        registry.get("pdiagnos")


def test_an_announced_class_can_be_made_by_name(announced) -> None:
    cls = announce()(Mine)
    made = registry.get("mine").build(seed=3)
    assert isinstance(made, cls)
    assert (made.name, made.tables) == ("mine", ())


def test_a_taken_name_is_refused_and_both_owners_named(announced) -> None:
    with pytest.raises(UsageError, match=r"two baselines.*KSigma and .*Mine"):
        announce("ksigma")(Mine)


def test_a_class_without_the_method_of_its_task_is_refused(announced) -> None:
    with pytest.raises(UsageError, match='no method "localize"'):
        announce("mine", "localization")(Mine)


def test_an_unknown_task_is_refused(announced) -> None:
    with pytest.raises(UsageError, match=r"detection.*localization"):
        announce("mine", "mitigation")(Mine)


def test_a_broken_plugin_hides_no_other_and_says_why_when_asked(announced, monkeypatch, caplog) -> None:
    broken = EntryPoint(name="broken", value="no_such_module:Thing", group=registry.GROUP)

    def listed(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [broken] if name in (None, "broken") else []

    monkeypatch.setattr(registry, "entry_points", listed)
    assert "ksigma" in registry.baselines()
    assert "broken" in caplog.text
    with pytest.raises(ModuleNotFoundError):
        registry.get("broken")


def test_an_entry_point_to_something_else_is_refused(announced, monkeypatch) -> None:
    wrong = EntryPoint(name="wrong", value="faultset.baselines.methods.rules.ksigma:KSigma", group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [wrong])
    with pytest.raises(UsageError, match='must name the class of the baseline "wrong"'):
        registry.get("wrong")


def test_a_ranking_without_positive_scores_abstains() -> None:
    ranking = Ranking.of({"a": 0.0, "b": float("nan"), "c": -1.0}, ("a", "b", "c"))
    assert ranking.abstains
    assert ranking.confidence == 0


def test_a_ranking_keeps_candidates_only_and_breaks_ties_by_name() -> None:
    ranking = Ranking.of({"b": 1.0, "a": 1.0, "c": 2.0, "stranger": 9.0}, ("a", "b", "c"))
    assert ranking.ordered == ("c", "a", "b")


def test_another_threshold_moves_the_alarm() -> None:
    times = np.arange(5) * 10
    found = Detection.from_scores(times, np.array([0.0, 2.0, 2.0, 5.0, 5.0]), 1.0)
    assert found.alarm_ns == 20
    assert found.at_threshold(3.0).alarm_ns == 40
    assert found.at_threshold(9.0).alarm_ns is None


def test_lengths_of_a_detection_must_agree() -> None:
    with pytest.raises(ValueError, match="one length"):
        Detection(
            times_ns=np.arange(3), scores=np.zeros(2), flags=np.zeros(3, dtype=bool), threshold=1.0, alarm_ns=None
        )
