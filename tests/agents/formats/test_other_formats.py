from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from faultset.agents import ScoredRun, import_runs, read_trajectory, score_runs
from faultset.core.errors import UsageError

SAMPLES = Path(__file__).parents[1] / "samples"


def scored(name: str, tmp_path: Path, path: Path | None = None, **options) -> dict[str, ScoredRun]:
    import_runs(name, path or SAMPLES / name, tmp_path / "runs", **options)
    return {f"{one.run.source_file}{one.run.episode or ''}": one for one in score_runs(tmp_path / "runs")}


def test_cloud_opsbench_orders_by_rank_and_ignores_case(tmp_path: Path) -> None:
    found = scored("cloud-opsbench", tmp_path)
    right, stopped = found["3.jsonscheduling/3"], found["4.jsonscheduling/4"]
    assert (right.run.status, right.success, dict(right.parts)) == ("ok", True, {"a_at_1": 1.0, "a_at_3": 1.0})
    assert (right.run.seconds_model, right.run.seconds_tools, right.run.prompt_tokens) == (3.0, 0.5, 200)
    assert (stopped.run.status, stopped.success, stopped.run.tool_errors) == ("step_limit", False, 1)


def test_the_truth_of_cloud_opsbench_stays_out_of_the_trajectory(tmp_path: Path) -> None:
    document = json.loads((SAMPLES / "cloud-opsbench" / "4.json").read_text())
    document["ground_truth"]["root_cause"] = "a_secret_cause"
    file = tmp_path / "case.json"
    file.write_text(json.dumps(document))
    found = scored("cloud-opsbench", tmp_path, file)
    run = next(iter(found.values())).run
    assert "a_secret_cause" not in (tmp_path / "runs" / run.trajectory_path).read_text()
    assert b"a_secret_cause" not in (tmp_path / "runs" / "runs.parquet").read_bytes()


def test_itbench_blames_the_contributing_entities(tmp_path: Path) -> None:
    found = scored("itbench", tmp_path)
    one = found["outputs/Scenario-2/1/agent_output.jsonScenario-2"]
    assert (one.run.answer or {})["root_causes"] == [{"entity": "otel-demo/Deployment/ad", "service": "ad"}]
    assert (one.run.trial, one.run.status, one.success) == (1, "ok", None)
    assert found["outputs/Scenario-3/2/agent_response.jsonScenario-3"].run.status == "invalid"


def test_rcabench_reads_answers_and_trajectories(tmp_path: Path) -> None:
    found = scored("rcabench", tmp_path)
    alone, whole = found["answer.jsonanswer"], found["trajectory.jsonts0-delay-1"]
    assert alone.run.answer == whole.run.answer
    assert (whole.truth.recorded_success, whole.truth.recorded_value, whole.run.agent) == (True, 1.0, "orchestrator")
    trajectory = read_trajectory(tmp_path / "runs" / whole.run.trajectory_path)
    calls = [call for step in trajectory.steps for call in step.tool_calls or ()]
    assert [call.arguments for call in calls] == [{"sql": "SELECT 1"}, {"text": "not json"}]
    inside = trajectory.subagent_trajectories or []
    assert [(one.agent.name, len(one.steps)) for one in inside] == [("analyst", 2)]


def test_rcabench_wants_evidence_for_each_cause(tmp_path: Path) -> None:
    document = json.loads((SAMPLES / "rcabench" / "answer.json").read_text())
    document["root_causes"][0]["evidence"] = []
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(document))
    assert next(iter(scored("rcabench", tmp_path, file).values())).run.status == "invalid"


def test_openrca_scores_the_best_assignment(tmp_path: Path) -> None:
    found = scored("openrca", tmp_path)
    values = [(one.run.status, one.value, one.truth.recorded_value) for one in found.values()]
    assert values == [("ok", 1.0, 1.0), ("ok", 0.75, 0.75), ("invalid", 0.0, 0.0), ("unparsed", 0.0, None)]


def test_atif_reads_any_version_and_writes_one(tmp_path: Path) -> None:
    found = scored("atif", tmp_path, candidates=["geo", "mongodb-geo"])
    own, shell = found["own.trajectory.jsone1"], found["shell.trajectory.jsonmade"]
    assert (own.run.answer, own.run.task, own.run.seed) == ({"services": ["geo"], "ordered": True}, "localization", 3)
    assert (shell.run.answer or {})["services"] == ["mongodb-geo"]
    assert (shell.run.answer or {})["text"] == "mongodb-geo doesn't answer"
    document = json.loads((tmp_path / "runs" / shell.run.trajectory_path).read_text())
    assert document["schema_version"] == "ATIF-v1.7"
    assert "unknown_key" not in document["steps"][1]
    assert document["steps"][1]["message"][1] == {"type": "text", "text": "[audio: a.wav]"}


@pytest.mark.parametrize("status", ["cheated", "timeout", "invalid", "token_limit"])
def test_a_status_that_faultset_gave_is_kept(status: str, tmp_path: Path) -> None:
    document = json.loads((SAMPLES / "atif" / "own.trajectory.json").read_text())
    document["extra"]["faultset"]["status"] = status
    file = tmp_path / "own.trajectory.json"
    file.write_text(json.dumps(document))
    assert [one.run.status for one in scored("atif", tmp_path, file).values()] == [status]


def test_inspect_logs_are_read_through_their_library(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")
    import_runs("inspect", SAMPLES / "inspect", tmp_path / "runs")
    runs = {(one.run.episode, one.run.trial): one for one in score_runs(tmp_path / "runs")}
    found = {key: (one.run.status, one.success, one.truth.recorded_success) for key, one in runs.items()}
    assert found == {
        ("case-1", 1): ("ok", True, True),
        ("case-1", 2): ("token_limit", False, False),
        ("case-2", 1): ("harness_error", False, None),
        ("case-3", 1): ("ok", False, True),
    }
    assert "includes" in runs["case-3", 1].difference
    first = runs["case-1", 1].run
    assert (first.prompt_tokens, first.cached_tokens, first.tool_errors) == (15, 5, 1)


def test_inspect_without_its_extra_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(UsageError, match='extra "inspect"'):
        import_runs("inspect", SAMPLES / "inspect", tmp_path / "runs")
