"""Registration and lookup of baselines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.baselines import registry
from faultset.baselines.contract import Detection, Detector, Diagnoser, Localizer, Ranking, TrainingFreeBaseline
from faultset.baselines.registry import list_baselines
from faultset.core import plugins
from faultset.core.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def announced(own_registries: None) -> dict[str, registry.BaselineSpec]:
    """Registrations that are undone after the test."""
    return registry._announced


def announce(name: str = "mine", task: str = "detection", **more: Any):
    return registry.baseline(
        name,
        title="Mine",
        task=task,  # type: ignore[arg-type]
        paper="None",
        kind="control",
        tables=(),
        speed="instant",
        **more,
    )


class Mine(TrainingFreeBaseline):
    """Control: no alarm."""

    def detect(self, episode: object) -> Detection:
        """Raise no alarm."""
        return Detection.silent()


def test_every_entry_point_is_a_baseline_of_that_name() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][registry.GROUP]
    baselines = registry.list_baselines()
    assert set(declared) == set(baselines)
    for name, target in declared.items():
        factory = baselines[name].factory
        assert target == f"{factory.__module__}:{factory.__qualname__}"


def test_the_named_baselines_of_the_paper_are_there() -> None:
    named = {spec.name: spec.task for spec in registry.list_baselines().values() if spec.kind == "named"}
    assert named == {"mksmc": "detection", "rmlad": "localization", "pdiagnose": "localization"}


def test_a_wrong_name_is_answered_with_the_closest() -> None:
    with pytest.raises(UsageError, match='unknown baseline "pdiagnos"; did you mean "pdiagnose"'):
        registry.get_baseline("pdiagnos")


def test_a_registered_class_can_be_built_by_name(announced) -> None:
    cls = announce()(Mine)
    instance = registry.get_baseline("mine").build(seed=3)
    assert isinstance(instance, cls)
    assert (instance.name, instance.tables) == ("mine", ())


def test_a_taken_name_is_refused_and_both_owners_named(announced) -> None:
    with pytest.raises(UsageError, match=r"two baselines.*KSigma and .*Mine"):
        announce("ksigma")(Mine)


def test_a_class_without_the_method_of_its_task_is_refused(announced) -> None:
    with pytest.raises(UsageError, match='must have the method "localize"'):
        announce("mine", "localization")(Mine)


def test_an_unknown_task_is_refused(announced) -> None:
    with pytest.raises(UsageError, match=r"detection.*localization"):
        announce("mine", "mitigation")(Mine)


def test_a_broken_plugin_hides_no_other_and_says_why_when_asked(announced, monkeypatch, caplog) -> None:
    broken = EntryPoint(name="broken", value="no_such_module:Thing", group=registry.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [broken])
    assert "ksigma" in registry.list_baselines()
    assert "broken" in caplog.text
    with pytest.raises(UsageError, match=r'plug-in "broken" of .* cannot be loaded: ModuleNotFoundError'):
        registry.get_baseline("broken")


def test_an_entry_point_to_something_else_is_refused(announced, monkeypatch) -> None:
    wrong = EntryPoint(name="wrong", value="faultset.baselines.methods.rules.metric_rules:KSigma", group=registry.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [wrong])
    with pytest.raises(UsageError, match='must be the class of the baseline "wrong"'):
        registry.get_baseline("wrong")


def test_a_built_baseline_has_the_type_of_its_task() -> None:
    assert isinstance(registry.get_detector("ksigma", level=0.01), Detector)
    assert isinstance(registry.get_localizer("random", seed=3), Localizer)
    assert isinstance(registry.get_diagnoser("constant-pair"), Diagnoser)
    with pytest.raises(UsageError, match='"ksigma" is for detection, not for localization'):
        registry.get_localizer("ksigma")


def test_an_unknown_need_and_an_own_detector_of_a_detector_are_refused(announced) -> None:
    with pytest.raises(UsageError, match=r"needs 'onset'; choose from \('labels', 'sli', 'alarm_location'\)"):
        announce(needs=("onset",))(Mine)
    with pytest.raises(UsageError, match="must not declare own_detector"):
        announce(own_detector="ksigma")(Mine)


def test_name_and_task_are_enough_and_the_rest_is_checked_when_given(announced) -> None:
    spec = registry.baseline("mine", task="detection")(Mine).spec  # type: ignore[attr-defined]
    assert (spec.title, spec.kind, spec.speed, spec.tables) == ("mine", "method", "fast", registry.TELEMETRY_TABLES)
    for field, wrong in (("kind", "best"), ("speed", "warp"), ("tables", "metrics")):
        with pytest.raises(UsageError, match=f"declares {field} '{wrong}'; "):
            registry.baseline("mine", task="detection", **{field: wrong})(Mine)  # type: ignore[arg-type]


def test_every_own_detector_performs_detection() -> None:
    own_detectors = {spec.name: spec.own_detector for spec in registry.list_baselines().values() if spec.own_detector}
    assert own_detectors == {
        "max-z": "max-z-detector",
        "pdiagnose": "pdiagnose-detector",
        "sli-rule": "sli-rule-detector",
    }
    assert all(registry.get_baseline(name).task == "detection" for name in own_detectors.values())


def test_the_package_exports_what_it_lists() -> None:
    import faultset.baselines as package

    assert package.get_baseline is registry.get_baseline
    assert all(hasattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'get'"):
        package.get  # type: ignore[attr-defined]  # noqa: B018


def test_a_ranking_without_positive_scores_abstains() -> None:
    ranking = Ranking.of({"a": 0.0, "b": float("nan"), "c": -1.0}, ("a", "b", "c"))
    assert ranking.abstains
    assert ranking.confidence == 0


def test_a_ranking_keeps_candidates_only_and_breaks_ties_by_name() -> None:
    ranking = Ranking.of({"b": 1.0, "a": 1.0, "c": 2.0, "stranger": 9.0}, ("a", "b", "c"))
    assert ranking.ordered == ("c", "a", "b")


def test_another_threshold_moves_the_alarm() -> None:
    times = np.arange(5) * 10
    result = Detection.from_scores(times, np.array([0.0, 2.0, 2.0, 5.0, 5.0]), 1.0)
    assert result.alarm_ns == 20


def test_lengths_of_a_detection_must_agree() -> None:
    with pytest.raises(ValueError, match="same length"):
        Detection(
            times_ns=np.arange(3), scores=np.zeros(2), flags=np.zeros(3, dtype=bool), threshold=1.0, alarm_ns=None
        )


@pytest.mark.parametrize("alarm_ns", [None, 1.5, "now"])
@pytest.mark.parametrize("name", ["pdiagnose", "nearest-signature"])
def test_an_alarm_that_is_not_a_time_is_rejected(name: str, alarm_ns: object):
    method = registry.get_baseline(name).build()
    answer = method.localize if isinstance(method, Localizer) else method.diagnose  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="alarm"):
        answer(None, alarm_ns)  # type: ignore[arg-type]


def test_a_method_without_its_extra_names_the_extra(announced: None):
    class Needy(Mine):
        def fit(self, healthy: Any) -> Any:
            raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")

    with pytest.raises(UsageError, match='extra "evaluate"'):
        announce()(Needy)().fit([])


def test_a_method_that_learns_nothing_keeps_the_mark_of_it(announced: None):
    assert announce()(Mine).fit is TrainingFreeBaseline.fit  # type: ignore[attr-defined]


def test_every_variant_of_a_method_is_another_reading_that_answers(example, faulty) -> None:
    view: Any = example.view(faulty)
    alarm_ns = view.reference[1] + 15_000_000_000
    named = [spec for spec in registry.list_baselines().values() if spec.kind == "named"]
    assert all(spec.reconstruction and spec.variants for spec in named)
    for spec in named:
        for label, parameters in spec.variants.items():
            method: Any = spec.build(**parameters)
            answer = method.detect(view) if spec.task == "detection" else method.localize(view, alarm_ns)
            ((name, value),) = parameters.items()
            assert getattr(method, name) == value, label
            assert isinstance(answer, Detection | Ranking), label


def test_an_open_setting_must_begin_with_the_default(announced) -> None:
    announce(open_settings={"level": (1, 2)})(type("Tuned", (Mine,), {"__init__": lambda self, *, level=1: None}))
    for settings in ({"level": (2, 1)}, {"other": (1,)}, {"level": ()}):
        with pytest.raises(UsageError, match="must be the default"):
            announce(open_settings=settings)(type("Tuned", (Mine,), {"__init__": lambda self, *, level=1: None}))


def test_a_method_that_reads_telemetry_was_developed_on_something() -> None:
    for spec in list_baselines().values():
        if spec.factory.__module__.startswith("faultset.") and spec.tables:
            assert spec.developed_on or spec.name == "constant-pair", spec.name


def test_our_variants_are_not_listed_as_published_methods() -> None:
    own = {"nezha-patterns", "graph-traversal", "deeplog-markov", "nearest-signature", "rca-tree", "rca-forest"}
    assert {list_baselines()[name].kind for name in own} == {"own"}


PAGE = (ROOT / "docs" / "developing" / "baseline.md").read_text()


def block(language: str) -> str:
    result = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert result
    return result[1]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Write the guide's two files as an installer would."""
    site = tmp_path / "site"
    (site / "new_lines-0.1.dist-info").mkdir(parents=True)
    (site / "new_lines.py").write_text(block("python"))
    project = tomllib.loads(block("toml"))["project"]
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (site / "new_lines-0.1.dist-info" / "METADATA").write_text(metadata)
    ((group, entries),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (site / "new_lines-0.1.dist-info" / "entry_points.txt").write_text("\n".join(lines))
    return site


def test_it_takes_thirty_lines() -> None:
    lines = [line for language in ("python", "toml") for line in block(language).splitlines() if line.strip()]
    assert len(lines) <= 30


def test_the_method_is_loaded_by_its_entry_point_and_answers(
    installed, example, faulty, monkeypatch, own_registries
) -> None:
    monkeypatch.syspath_prepend(str(installed))
    spec = registry.get_baseline("new-lines")
    assert registry.list_baselines()["new-lines"] is spec
    view = example.view(faulty)
    label = example.label(faulty)
    ranking = spec.build().localize(view, label.inject_start_ns)  # type: ignore[union-attr]
    assert ranking.ordered[0] == label.targets[0]


@pytest.mark.slow
def test_the_commands_score_the_method(installed, tmp_path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    for line in block("sh").splitlines():
        if line.startswith("pip "):
            continue
        command = line.replace("python ", f"{sys.executable} ", 1)
        if line.startswith("evaluate "):
            command = f"{Path(sys.executable).parent / 'evaluate'} {line.removeprefix('evaluate ')}"
        subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment, capture_output=True)
    board = json.loads((tmp_path / "results" / "leaderboard.json").read_text())
    assert '"new-lines"' in json.dumps(board)
    assert (tmp_path / "results" / "report.html").is_file()


@pytest.mark.slow
def test_the_contract_holds_for_the_method(installed) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", "from faultset.baselines.testing import check_baseline as c; c('new-lines')"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
