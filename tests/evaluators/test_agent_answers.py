"""Logs of Inspect stand in the same tables as methods."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inspect_ai import Task
from inspect_ai import eval as run_task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, read_eval_log, write_eval_log
from inspect_ai.model import get_model

from faultset.agents import import_runs
from faultset.agents.solvers import random_agent, scripted
from faultset.core.errors import DataError, UsageError
from faultset.datasets.examples import write_example_dataset
from faultset.evaluators import Evaluation, evaluate
from faultset.evaluators.agent_tasks.recorded import detection, localization, root_cause
from faultset.evaluators.cli.evaluate import evaluate as command
from faultset.evaluators.leaderboards.formats import render_text
from tests.agents.chat_server import Scripted, chat_server, failed, in_turn, said

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""Of the connections that Inspect keeps to its models."""


def teardown_module() -> None:
    """Free those connections while the filter holds, so that no later test is blamed for them."""
    gc.collect()


SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
FAULTY = "a5edb68659bc"
BASELINES = ("trace-errors", "max-z", "constant-pair")
GEO = said("It is geo.", ("submit_localization", {"services": ["geo"]}))


def run(task: Task, folder: Path, **options: Any) -> EvalLog:
    settings = {"log_dir": str(folder), "display": "none", "model": "none", "fail_on_error": False} | options
    (log,) = run_task(task, **settings)
    return log


def asked_of_server(folder: Path, *replies: Scripted, **options: Any) -> EvalLog:
    """Run localization of one episode against a server on loopback."""
    with chat_server(in_turn(*replies)) as server:
        model = get_model("openai-api/local/m", base_url=server.base_url, api_key="none", memoize=False)
        task = localization(dataset=str(SAMPLE), episodes=FAULTY, protocol="oracle")
        return run(task, folder, model=model, max_retries=0, **options)


def evaluated(*logs: Path, baselines: tuple[str, ...] = BASELINES, **options: Any) -> Evaluation:
    return evaluate(SAMPLE, baselines, agents=logs, workers=1, **options)


def evaluate_with_one_method(*logs: Path) -> Evaluation:
    """Evaluate logs of `asked_of_server` beside one method that answers the same question."""
    return evaluated(*logs, baselines=("max-z",), tasks=("localization",), protocol="oracle")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of the random control at every task, in two epochs, and of the scripted one at two tasks."""
    folder = tmp_path_factory.mktemp("logs")
    data: dict[str, Any] = {"dataset": str(SAMPLE)}
    for task in (
        detection(**data),
        localization(**data),
        localization(**data, protocol="oracle"),
        root_cause(**data),
        root_cause(**data, protocol="oracle"),
    ):
        run(task, folder, solver=random_agent(), epochs=2)
    for task in (detection(**data), localization(**data, protocol="oracle")):
        run(task, folder, solver=scripted())
    return folder


@pytest.fixture(scope="module")
def done(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluation, Path]:
    out = tmp_path_factory.mktemp("evaluated") / "results"
    return evaluated(logs, out=out), out


def test_agents_have_a_line_in_every_table_of_the_telemetry_methods(done: tuple[Evaluation, Path]) -> None:
    names = {(t.task, t.protocol, t.verdict): {e.baseline for e in t.entries} for t in done[0].tables}
    assert len(names) == 10
    assert all("random-agent" in entries for entries in names.values())


def test_agents_answer_the_same_questions_as_methods_with_the_same_alarms(done: tuple[Evaluation, Path]) -> None:
    asked: dict[str, set[tuple[str, str, str]]] = {}
    for row in done[0].rows:
        if row.protocol in ("detected", "oracle"):
            asked.setdefault(row.baseline, set()).add((row.task, row.protocol, row.episode))
    assert asked["random-agent"] == asked["trace-errors"] | asked["max-z"] | asked["constant-pair"]
    alarms = {(r.baseline, r.episode): r.given_alarm_ns for r in done[0].rows if r.protocol == "detected"}
    assert all(alarms["random-agent", r.episode] == alarms["max-z", r.episode] for r in done[0].rows if r.task != "rca")


def test_a_yes_of_an_agent_is_an_alarm_at_the_moment_of_the_answer(done: tuple[Evaluation, Path]) -> None:
    rows = [r for r in done[0].rows if r.task == "detection" and r.baseline == "scripted" and r.alarm_ns]
    assert rows
    assert all(row.alarm_ns == row.truth.view_end_ns for row in rows)


def test_epochs_are_trials_and_agents_are_compared_with_the_best_method_of_any_kind(
    done: tuple[Evaluation, Path],
) -> None:
    lines = {(line.agent, line.task, line.protocol): line for line in done[0].board.agents}
    assert len(lines) == 7
    line = lines["random-agent", "localization", "oracle"]
    assert (line.trials, line.runs, line.kind) == (2, 12, "control")
    assert (line.best_algorithm, line.best_value) == ("max-z", 1.0)
    assert lines["scripted", "localization", "oracle"].calls["get_logs"] == 6
    assert "best algorithm or control" in (done[1] / "leaderboard.md").read_text()


def test_an_imported_folder_scores_exactly_as_its_logs(
    done: tuple[Evaluation, Path], logs: Path, tmp_path: Path
) -> None:
    import_runs("inspect", logs, tmp_path / "runs")

    def scores(evaluation: Evaluation) -> list[tuple[object, ...]]:
        return [
            (t.task, t.protocol, t.verdict, e.baseline, m, v.value)
            for t in evaluation.tables
            for e in t.entries
            for m, v in e.metrics.items()
            if v.known
        ]

    again = evaluated(tmp_path / "runs")
    assert scores(again) == scores(done[0])
    shutil.rmtree(tmp_path / "runs" / "trajectories")
    without = evaluated(tmp_path / "runs")
    assert scores(without) == scores(done[0])
    assert without.inspected_services == {}


def test_tokens_calls_and_model_are_those_of_the_log(tmp_path: Path) -> None:
    asked_of_server(tmp_path, said("look", ("kubectl", {"command": "kubectl get pods"})), GEO)
    (run,) = evaluate_with_one_method(tmp_path).agent_runs
    assert (run.agent, run.model, run.status) == ("react", "openai-api/local/m", "ok")
    assert (run.model_calls, run.tool_calls, run.prompt_tokens, run.completion_tokens) == (2, 2, 200, 20)
    assert run.answer == {"services": ["geo"], "ordered": True}


def test_costs_are_those_that_inspect_computed(tmp_path: Path) -> None:
    log = asked_of_server(tmp_path / "logs", GEO)
    assert log.samples
    for usage in log.samples[0].model_usage.values():
        usage.total_cost = 0.25
    write_eval_log(log, log.location)
    evaluation = evaluate_with_one_method(tmp_path / "logs")
    (line,) = evaluation.board.agents
    assert line.cost_usd == 0.25


@pytest.mark.parametrize(
    "reply",
    [
        failed(400, "tools are not supported"),
        failed(410, "the model is gone"),
        failed(401, "the key is wrong"),
        Scripted(body={"error": {"message": "out of credit"}}),
        Scripted(body=b"<html>proxy</html>"),
    ],
    ids=["400", "410", "401", "200 with an error", "200 with a page"],
)
def test_an_agent_whose_model_fails_has_no_row_and_is_named(reply: Scripted, tmp_path: Path) -> None:
    asked_of_server(tmp_path, reply)
    evaluation = evaluate_with_one_method(tmp_path)
    assert "react (openai-api/local/m)" not in {row.baseline for row in evaluation.rows}
    (sentence,) = evaluation.settings["agents_left_out"]
    assert sentence.startswith(
        "react (openai-api/local/m) is left out of localization: no run succeeded (1 failure, first: "
    )
    assert evaluation.board.agents == ()
    assert "agents: react (openai-api/local/m) is left out of localization" in render_text(evaluation.board, 500)


def test_an_agent_with_an_answer_counts_its_failed_runs_as_wrong(tmp_path: Path) -> None:
    asked_of_server(tmp_path, GEO, failed(400, "overloaded"), epochs=2, max_samples=1)
    (line,) = evaluate_with_one_method(tmp_path).board.agents
    assert line.statuses == {"ok": 1, "harness_error": 1, "missing": 5}
    assert line.without_harness_errors.value > line.pass_1.value


def test_a_retried_sample_replaces_the_failed_one(tmp_path: Path) -> None:
    first = asked_of_server(tmp_path, failed(400, "overloaded"))
    second = asked_of_server(tmp_path / "later", GEO)
    second.eval.task_id = first.eval.task_id
    write_eval_log(second, str(tmp_path / "later.eval"))
    shutil.rmtree(tmp_path / "later")
    assert [run.status for run in evaluate_with_one_method(tmp_path).agent_runs] == ["ok"]


def test_two_evaluations_of_one_agent_are_trials(tmp_path: Path) -> None:
    for _ in range(2):
        asked_of_server(tmp_path, GEO)
    assert sorted(str(run.trial) for run in evaluate_with_one_method(tmp_path).agent_runs) == ["0", "1"]


def _without_questions(folder: Path) -> None:
    run(Task(dataset=[Sample(input="2+2", target="4")]), folder)


def _about_other_episodes(folder: Path) -> None:
    other = folder.parent / "other"
    write_example_dataset(other)
    run(detection(dataset=str(other)), folder, solver=scripted())


def _with_another_alarm(folder: Path) -> None:
    log = run(localization(dataset=str(SAMPLE)), folder, solver=scripted())
    assert log.samples
    for sample in log.samples:
        sample.metadata["faultset"]["alarm_ns"] += 1
    write_eval_log(log, log.location)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_without_questions, "must hold runs of faultset/detection"),
        (_about_other_episodes, "about the episode"),
        (_with_another_alarm, "did not start from the alarm of trace-errors"),
        (lambda folder: folder.mkdir(), "holds no runs; give a folder of Inspect's logs"),
    ],
)
def test_logs_that_do_not_fit_are_refused(make: Callable[[Path], None], sentence: str, tmp_path: Path) -> None:
    make(tmp_path / "logs")
    with pytest.raises(DataError, match=sentence):
        evaluated(tmp_path / "logs")


def test_foreign_runs_are_refused_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.evaluators.execution.scheduling.run_plan", lambda *a: pytest.fail("it computed"))
    _about_other_episodes(tmp_path / "logs")
    with pytest.raises(DataError, match="evaluate the dataset that the agents were run on"):
        evaluated(tmp_path / "logs")


def test_without_the_extra_logs_are_one_sentence(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(UsageError, match='extra "inspect"'):
        evaluated(logs)


def test_an_alarm_that_nothing_raises_is_asked_for(logs: Path) -> None:
    with pytest.raises(
        UsageError, match="alarm of trace-errors, but no chosen baseline computes it; add it or a localizer"
    ):
        evaluated(logs, baselines=("ksigma",))


def test_the_command_takes_logs_and_names_a_path_without_any(logs: Path, tmp_path: Path) -> None:
    arguments = [str(SAMPLE), "--baselines", ",".join(BASELINES), "--out", str(tmp_path / "out"), "--workers", "1"]
    result = CliRunner().invoke(command, [*arguments, "--agents", str(logs)])
    assert result.exit_code == 0, result.output
    assert "agents · localization, given the true onset" in result.output
    wrong = CliRunner().invoke(command, [*arguments, "--agents", "react"])
    assert "react does not exist; give a folder of Inspect's logs" in str(wrong.exception) + wrong.output


def test_logs_hold_no_path_or_name_that_a_model_saw(logs: Path) -> None:
    for file in logs.glob("*.eval"):
        for sample in read_eval_log(str(file)).samples or ():
            shown = "".join(message.text for message in sample.messages)
            assert str(SAMPLE) not in shown
            assert str(sample.id) not in shown
