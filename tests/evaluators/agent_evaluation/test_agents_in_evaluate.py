"""Agents stand in the same tables as baselines, whether they are run now or were run before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.agents import import_runs, score_runs
from faultset.agents.runs.storage import read_runs, trajectory_file
from faultset.agents.trajectories.reading import read_trajectory
from faultset.core.errors import DataError, UsageError
from faultset.evaluators import evaluate
from faultset.evaluators.agent_evaluation.choice import AgentSettings
from faultset.evaluators.cli.evaluate import evaluate as command
from faultset.evaluators.evaluation import Evaluation

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "datasets" / "sample"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluation, Path]:
    out = tmp_path_factory.mktemp("agents") / "results"
    made = evaluate(
        SAMPLE,
        ["spot", "max-z", "constant-pair"],
        agents=["scripted", "random-agent"],
        agent_settings=AgentSettings(trials=2),
        alarm="spot",
        workers=1,
        out=out,
    )
    return made, out


def test_agents_have_a_line_in_every_table_of_the_telemetry_methods(done: tuple[Evaluation, Path]) -> None:
    evaluation, _ = done
    lines = {(t.task, t.protocol, t.verdict): {e.baseline for e in t.entries} for t in evaluation.tables}
    assert len(lines) == 10
    assert all({"scripted", "random-agent"} <= names for names in lines.values())


def test_agents_answer_the_same_episodes_as_baselines(done: tuple[Evaluation, Path]) -> None:
    evaluation, _ = done
    asked: dict[str, set[tuple[str, str, str]]] = {}
    for row in evaluation.rows:
        if row.protocol in ("detected", "oracle"):
            asked.setdefault(row.baseline, set()).add((row.task, row.protocol, row.episode))
    assert asked["scripted"] == asked["spot"] | asked["max-z"] | asked["constant-pair"]
    given = {(r.baseline, r.episode): r.given_alarm_ns for r in evaluation.rows if r.protocol == "detected"}
    assert all(given["scripted", r.episode] == given["max-z", r.episode] for r in evaluation.rows if r.task != "rca")


def test_a_yes_of_an_agent_is_an_alarm_at_the_moment_of_the_answer(done: tuple[Evaluation, Path]) -> None:
    evaluation, _ = done
    rows = [r for r in evaluation.rows if r.task == "detection" and r.baseline == "scripted" and r.alarm_ns]
    assert rows
    assert all(row.alarm_ns == row.truth.view_end_ns for row in rows)


def test_trials_stand_where_other_methods_have_seeds(done: tuple[Evaluation, Path]) -> None:
    evaluation, _ = done
    seeds = {
        name: {row.seed for row in evaluation.rows if row.baseline == name} for name in ("scripted", "random-agent")
    }
    assert seeds == {"scripted": {0}, "random-agent": {0, 1}}


def test_every_run_is_kept_with_its_trajectory(done: tuple[Evaluation, Path]) -> None:
    evaluation, out = done
    runs = read_runs(out / "agent-runs")
    assert list(evaluation.agent_runs) == runs
    assert {run.run for run in runs} == {r.answer["agent_run"] for r in evaluation.rows if "agent_run" in r.answer}
    for run in runs[:5]:
        assert len(read_trajectory(trajectory_file(out / "agent-runs", run)).agent_steps) == run.steps


def test_runs_that_were_made_before_score_exactly_as_when_they_were_made(done: tuple[Evaluation, Path]) -> None:
    evaluation, out = done
    again = evaluate(SAMPLE, ["spot", "max-z", "constant-pair"], alarm="spot", agents=[out / "agent-runs"], workers=1)

    def scores(one: Evaluation) -> list[tuple[object, ...]]:
        return [
            (t.task, t.protocol, t.verdict, e.baseline, e.kind, m, round(v.value, 9))
            for t in one.tables
            for e in t.entries
            for m, v in e.metrics.items()
            if v.known
        ]

    assert scores(again) == scores(evaluation)


def test_runs_whose_trajectories_are_damaged_or_gone_still_count(done: tuple[Evaluation, Path], tmp_path: Path) -> None:
    _, out = done
    copy = tmp_path / "runs"
    shutil.copytree(out / "agent-runs", copy)
    first, second, *_ = sorted((copy / "trajectories").iterdir())
    first.unlink()
    second.write_bytes(b"\xff\x00 cut in the mid")
    again = evaluate(SAMPLE, ["spot", "max-z"], alarm="spot", agents=[copy], workers=1)
    assert len(again.agent_looks) == len(again.agent_runs) - 2
    assert {row.status for row in again.rows if row.baseline == "scripted"} <= {"ok", "no_alarm"}


def test_whoever_scores_runs_of_an_evaluation_by_themselves_is_told_how(done: tuple[Evaluation, Path]) -> None:
    _, out = done
    with pytest.raises(DataError, match="score them with evaluate DATASET --agents"):
        score_runs(out / "agent-runs")


def test_runs_on_other_episodes_are_refused_in_one_sentence(tmp_path: Path) -> None:
    archive = next((ROOT / "tests" / "agents" / "samples" / "openrca").rglob("*.csv"))
    import_runs("openrca", archive, tmp_path / "runs")
    with pytest.raises(DataError, match="holds runs on other episodes"):
        evaluate(SAMPLE, ["spot"], agents=[tmp_path / "runs"], workers=1)


def test_an_alarm_that_nobody_tells_is_asked_for() -> None:
    with pytest.raises(UsageError, match="add trace-errors or a localizer to --baselines"):
        evaluate(SAMPLE, ["ksigma"], agents=["scripted"], workers=1)


def test_an_unknown_agent_is_a_usage_error_of_the_command() -> None:
    result = CliRunner().invoke(command, [str(SAMPLE), "--agents", "scriptd", "--out", "unused"])
    assert isinstance(result.exception, UsageError) or "scriptd" in result.output


def test_the_report_shows_what_agents_took_and_looked_at(done: tuple[Evaluation, Path]) -> None:
    evaluation, out = done
    page = (out / "report.html").read_text()
    section = page[page.index('<h2 id="agents">') : page.index('<h2 id="faults">')]
    assert "What they looked at, and what they did not" in section
    assert "list_objects 2" in section
    assert "## Agents" in (out / "leaderboard.md").read_text()
    lines = {(line.agent, line.task, line.protocol): line for line in evaluation.board.agents}
    assert len(lines) == 10
    scripted = lines["scripted", "localization", "detected"]
    assert (scripted.calls["get_logs"], scripted.trials, scripted.best_algorithm) == (6, 1, None)


def test_a_report_without_agents_does_not_speak_of_them() -> None:
    from faultset.evaluators.reports.page import render

    plain = evaluate(SAMPLE, ["spot", "max-z"], workers=1)
    assert "What agents took" not in render(plain.board, plain.rows, plain.specs, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--base-url", "http://127.0.0.1:1/v1"], "name it with --model"),
        (["--model", "m", "--base-url", "nowhere"], "no address of a server"),
        (["--agents", "react"], "asks a model; name it with --model"),
        (["--model", "m", "--max-cost", "1"], 'nobody knows what "m" costs'),
        (["--model", "gpt-5-mini", "--max-cost", "0"], "leaves nothing to do"),
    ],
)
def test_options_that_cannot_be_meant_are_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    given = [str(SAMPLE), "--out", str(tmp_path / "out"), "--baselines", "spot,max-z", *arguments]
    result = CliRunner().invoke(command, given)
    assert words in str(result.exception) + result.output
