"""`diagnose` names suspects from an episode without a label, and says when there is no evidence."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.core.code_identity import CodeIdentity
from faultset.core.errors import UsageError
from faultset.datasets import open_dataset
from faultset.datasets.tools.recording import ViewClock
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView
from faultset.evaluators.diagnosis import analysis as analysis_module
from faultset.evaluators.diagnosis.agent_tool import diagnosis_tool
from faultset.evaluators.diagnosis.analysis import PANEL, diagnose, rank_suspects
from faultset.evaluators.diagnosis.records import IncidentAnalysis, PanelAnswer, read_calibration
from faultset.evaluators.diagnosis.text import analysis_text, read_moment
from faultset.evaluators.results.rows import Status

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
FAULT, HEALTHY = "a5edb68659bc", "1c875b58f1f5"
"""A failing pod of geo, and an episode without a fault."""
FEW = ("nsigma", "event-log")


@pytest.fixture(scope="module")
def analysis() -> IncidentAnalysis:
    return diagnose(open_dataset(SAMPLE)[FAULT])


def test_a_loud_fault_has_the_right_suspect_with_evidence_from_several_kinds_of_telemetry(analysis):
    suspect = analysis.suspects[0]
    assert suspect.service == "geo"
    assert {item.kind for item in suspect.observations} == {"change", "metric", "calls", "log lines"}
    assert analysis.moment_from == "trace-errors"
    assert analysis.hit_rate == read_calibration().hit_rate(analysis.agreeing, oracle=False)
    assert json.loads(json.dumps(analysis.to_dict()))["agreeing"] == analysis.agreeing


def test_the_truth_is_not_read(analysis, tmp_path):
    folder = tmp_path / FAULT
    shutil.copytree(SAMPLE / "episodes" / FAULT, folder, ignore=shutil.ignore_patterns("truth"))
    again = diagnose(folder)
    assert [(answer.method, answer.scores) for answer in again.answers] == [
        (answer.method, answer.scores) for answer in analysis.answers
    ]
    assert again.suspects == analysis.suspects


def test_a_healthy_episode_has_no_evidence_and_no_suspect():
    healthy = diagnose(open_dataset(SAMPLE)[HEALTHY])
    assert (healthy.suspects, healthy.hit_rate, healthy.moment_from) == ((), None, "end of the reference")
    assert healthy.strength <= healthy.limit
    assert "No evidence" in analysis_text(healthy)


def test_a_given_time_replaces_the_alarm():
    view = open_dataset(SAMPLE)[FAULT].view
    given = diagnose(SAMPLE / "episodes" / FAULT, at_ns=view.window[1] - 10**10, methods=FEW)
    assert (given.moment_ns, given.moment_from) == (view.window[1] - 10**10, "given")
    assert [answer.method for answer in given.answers] == list(FEW)
    assert given.hit_rate is None
    with pytest.raises(UsageError, match="must be inside the telemetry"):
        diagnose(SAMPLE / "episodes" / FAULT, at_ns=view.window[1])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("ksigma", '"ksigma" performs detection'),
        ("boosted-ranker", "learns from labelled episodes"),
        ("nsigmo", "nsigma"),
    ],
)
def test_methods_that_cannot_name_suspects_are_one_sentence(method, message):
    with pytest.raises(UsageError, match=message):
        diagnose(SAMPLE / "episodes" / FAULT, methods=[method])


def test_other_methods_answer_the_same_from_a_process_of_their_own(monkeypatch):
    inside = diagnose(SAMPLE / "episodes" / FAULT, methods=FEW)
    code = analysis_module.method_code

    def foreign(spec) -> CodeIdentity:
        return replace(code(spec), distribution="other 1.0") if spec.name in FEW else code(spec)

    monkeypatch.setattr(analysis_module, "method_code", foreign)
    outside = diagnose(SAMPLE / "episodes" / FAULT, methods=FEW)
    assert [answer.scores for answer in outside.answers] == [answer.scores for answer in inside.answers]
    assert all(answer.scores for answer in outside.answers[:1])


def test_a_method_that_fails_is_named_and_an_interrupt_ends_the_call(monkeypatch):
    from faultset.baselines.methods.rules.metric_rules import NSigma

    def fail(self, episode, alarm_ns):
        raise error

    monkeypatch.setattr(NSigma, "localize", fail)
    error: BaseException = ValueError("no such series")
    failed = diagnose(SAMPLE / "episodes" / FAULT, methods=FEW)
    assert failed.answers[0].status == "error"
    assert "nsigma: no answer (ValueError: no such series" in analysis_text(failed)
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        diagnose(SAMPLE / "episodes" / FAULT, methods=FEW)


def answer(method: str, *services: str, status: Status = "ok") -> PanelAnswer:
    scores = {service: 1 / rank for rank, service in enumerate(services, start=1)}
    return PanelAnswer(method=method, kind="method", scores=scores, status=status)


def test_the_leading_method_names_the_first_suspect_and_all_methods_the_others():
    answers = [answer("lead", "a", "b"), answer("x", "c", "a"), answer("y", "c"), answer("z", status="cannot")]
    assert rank_suspects(answers) == [("a", 0.5), ("c", 2 / 3), ("b", 1 / 6)]
    assert [name for name, _ in rank_suspects([answer("lead"), *answers[1:]])] == ["c", "a"]


def test_the_text_fits_a_terminal(analysis):
    lines = analysis_text(analysis).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    observations = analysis.suspects[0].observations
    long = replace(observations[0], text="word " * 60)
    suspects = tuple(replace(suspect, observations=(long,) * 4) for suspect in analysis.suspects)
    assert len(analysis_text(replace(analysis, suspects=suspects)).splitlines()) <= 40


def test_the_calibration_is_that_of_the_panel():
    calibration = read_calibration()
    assert (calibration.panel, calibration.control) == (PANEL, analysis_module.CONTROL)
    for protocol, rates in (("oracle", calibration.oracle), ("detected", calibration.detected)):
        assert sum(rate.incidents for rate in rates) == sum(row.named for row in calibration.data[protocol])
        assert sum(rate.right for rate in rates) == sum(row.right for row in calibration.data[protocol])
        assert sum(rate.healthy for rate in rates) == sum(row.healthy_named for row in calibration.data[protocol])
    assert calibration.hit_rate(99, oracle=True).incidents == 0


def test_a_time_of_day_is_the_first_in_the_view():
    context = EpisodeView(SAMPLE / "episodes" / FAULT).context
    start_ns = context.view_start_ns
    assert read_moment("2026-11-22T02:11:00+00:00", start_ns) == read_moment("02:11", start_ns)
    assert start_ns < read_moment("02:11", start_ns) < context.view_end_ns
    assert read_moment("01:00:30", start_ns) > context.view_end_ns
    with pytest.raises(UsageError, match="a time must be written like"):
        read_moment("soon", start_ns)


def test_the_tool_of_agents_sees_no_more_than_the_clock(monkeypatch):
    monkeypatch.setattr(analysis_module, "PANEL", FEW)
    monkeypatch.setattr(analysis_module, "DETECTORS", ())
    folder = SAMPLE / "episodes" / FAULT
    context = EpisodeView(folder).context
    tools = EpisodeTools(EpisodeView(folder), ViewClock(context, context.reference_end_ns))
    assert "diagnose" not in tools.tools
    tools.tools["diagnose"] = diagnosis_tool(folder, tools.clock)
    assert tools.call("diagnose").status == "invalid"
    tools.clock.wait(25)
    answer = tools.call("diagnose", {"at": "02:11:30"})
    assert answer.status == "ok"
    assert "to 02:11:46 UTC" in answer.text
