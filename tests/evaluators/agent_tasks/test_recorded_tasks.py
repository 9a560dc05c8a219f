"""Recorded episodes as Inspect tasks, run by Inspect with a model that replies what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.solver import SolverSpec

from faultset.agents.interface.inspect_tools import shown_text
from faultset.agents.runs.record import AskedQuestion
from faultset.agents.solvers import random_agent, scripted
from faultset.core.errors import DataError, UsageError
from faultset.datasets import open_dataset
from faultset.evaluators import evaluate
from faultset.evaluators.agent_answers import read_recorded_runs
from faultset.evaluators.agent_tasks.recorded import detection, localization, root_cause, score_report
from faultset.evaluators.results.truth import Truth, build_truth
from tests.evaluators.recordings.recording_samples import recorded_dataset

from .conftest import FAULTY, SAMPLE, Run, called, mock, text, values_of

ABOUT: dict[str, Any] = {"dataset": str(SAMPLE), "episodes": FAULTY}


def test_a_model_is_scored_by_what_it_submitted_and_not_by_what_it_says(run: Run) -> None:
    outputs = [
        called("kubectl", command="kubectl get pods"),
        called("submit_localization", services=["nobody"]),
        text("It is geo, I think."),
        called("submit_localization", services=["rate", "geo"]),
    ]
    log = run(localization(**ABOUT, protocol="oracle"), mock(outputs))
    assert values_of(log) == {"ac1": 0.0, "ac3": 1.0, "ac5": 1.0, "mrr": 0.5}
    messages = log.samples[0].messages  # type: ignore[index]
    conversation = "".join(shown_text(message) for message in messages)
    assert "is not a candidate; answer again" in conversation
    assert FAULTY not in conversation
    assert str(SAMPLE) not in conversation


def test_a_model_that_never_submits_is_asked_for_the_answer_and_is_wrong(run: Run) -> None:
    log = run(detection(**ABOUT), mock([text("There is a fault: yes.")] * 40))
    assert values_of(log) == {"correct": 0.0}
    sample = log.samples[0]  # type: ignore[index]
    assert sample.store["faultset"]["stopped_by"] == "step_limit"
    assert sample.messages[-3].text == "This is your last reply. Answer now with a call of submit_detection."


@pytest.mark.parametrize(
    ("task", "answer", "correct"),
    [
        (detection, called("submit_detection", fault=True), 1.0),
        (detection, called("submit_detection", fault=False), 0.0),
        (root_cause, called("submit_rca", system_level="Virtualization", fault_type="operation error"), 1.0),
        (root_cause, called("submit_rca", system_level="Virtualization", fault_type="Code Defect"), 0.0),
    ],
)
def test_detection_and_root_cause_are_right_or_wrong(
    run: Run, task: Callable[..., Any], answer: Any, correct: float
) -> None:
    more = {"protocol": "oracle"} if task is root_cause else {}
    assert values_of(run(task(**ABOUT, **more), mock([answer]))) == {"correct": correct}


def test_a_task_is_found_by_its_name_and_a_control_needs_no_model(run: Run) -> None:
    log = run("faultset/localization", solver=SolverSpec("faultset/scripted"), task_args=ABOUT | {"protocol": "oracle"})
    assert values_of(log)["ac1"] == 1.0


def test_an_alarm_starts_the_work_of_the_detected_protocol() -> None:
    task = localization(dataset=str(SAMPLE))
    questions = {sample.id: AskedQuestion.model_validate(sample.metadata["faultset"]) for sample in task.dataset}  # type: ignore[index]
    assert {one.alarm_detector for one in questions.values()} == {"trace-errors"}
    assert all(one.alarm_ns for one in questions.values())
    assert 0 < len(questions) < len(open_dataset(SAMPLE).episodes)
    assert all("An alarm was raised at" in str(sample.input) for sample in task.dataset)


def test_a_complaint_takes_the_place_of_the_time_and_names_its_agents(run: Run) -> None:
    log = run(localization(**ABOUT, protocol="oracle", complaint=True), solver=scripted())
    assert log.samples is not None
    (sample,) = log.samples
    assert 'A user complains: "since about 02:10 UTC, GET /hotels often fails".' in str(sample.input)
    assert "An alarm was raised" not in str(sample.input)
    (recorded,) = read_recorded_runs([log.location])
    assert recorded.label == "scripted, complaint"


def test_incidents_of_a_recording_are_asked_at_the_alarms_that_evaluate_raises_online(run: Run, tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path / "hours", {"r1": [(2000, 150), (2900, 120)]})
    with pytest.raises(UsageError, match="choose faultset/localization"):
        detection(dataset=str(dataset.root))
    run(localization(dataset=str(dataset.root)), solver=random_agent())
    with pytest.raises(UsageError, match="add one to --baselines"):
        evaluate(dataset, ["spot"], agents=[tmp_path / "logs"], workers=1)
    done = evaluate(dataset, ["max-z"], agents=[tmp_path / "logs"], workers=1, tasks=["localization"])
    faulty = (row for row in done.rows if row.truth.faulty and row.protocol == "detected")
    rows = {(row.baseline, row.episode): row for row in faulty}
    asked = [episode for name, episode in rows if name == "random-agent"]
    assert len(asked) == 2
    for episode in asked:
        agent, method = rows["random-agent", episode], rows["max-z", episode]
        assert agent.status == "ok"
        assert agent.given_alarm_ns == method.given_alarm_ns is not None


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({}, UsageError, "needs a dataset; add for example -T dataset="),
        ({"dataset": "s3://bucket/data"}, UsageError, "copy the dataset to a folder"),
        (ABOUT | {"episodes": "a5edb68659bd"}, UsageError, f'did you mean "{FAULTY}"'),
        (ABOUT | {"protocol": "orakle"}, UsageError, 'did you mean "oracle"'),
        (ABOUT | {"split": "nowhere"}, UsageError, "nowhere"),
        ({"dataset": "nowhere"}, DataError, "nowhere"),
    ],
)
def test_arguments_that_name_nothing_are_one_sentence(
    arguments: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        localization(**arguments)


@pytest.mark.parametrize("more", [{"protocol": "oracle"}, {"alarm": "ksigma"}, {"complaint": True}])
def test_detection_is_asked_without_an_alarm_or_an_onset(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="takes no protocol, alarm or complaint"):
        detection(**ABOUT, **more)


def _truth() -> Truth:
    dataset = open_dataset(SAMPLE)
    return build_truth(dataset.label(FAULTY), dataset.view(FAULTY).context)


@pytest.mark.parametrize("task", ["localization", "diagnosis"])
def test_localization_and_root_cause_of_a_healthy_episode_are_not_scored(task: Any) -> None:
    healthy = replace(_truth(), fault=None, causes=(), system_level=None, fault_type=None)
    assert score_report(AskedQuestion(task=task, protocol="detected"), {}, healthy) is None


def test_ties_are_scored_by_chance_as_in_the_leaderboards() -> None:
    answer = {"services": ["geo", "rate"], "ordered": False}
    report = json.loads(json.dumps({"status": "ok", "answer": answer}))
    scores = score_report(AskedQuestion(task="localization", protocol="oracle"), report, _truth())
    assert scores is not None
    assert scores["ac1"] == 0.5
