from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from faultset.agents import ScoredRun, import_runs, score_runs
from faultset.core.errors import UsageError

SAMPLES = Path(__file__).parents[1] / "samples"


def scored(name: str, tmp_path: Path, path: Path | None = None, **options) -> dict[str, ScoredRun]:
    import_runs(name, path or SAMPLES / name, tmp_path / "runs", **options)
    return {f"{one.run.source_file}{one.run.episode or ''}": one for one in score_runs(tmp_path / "runs")}


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
