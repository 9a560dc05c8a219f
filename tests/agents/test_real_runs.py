"""Recorded runs of other projects: their figures come out again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from faultset.agents import ScoredRun, import_runs, read_trajectory, score_runs
from faultset.evaluators.agent_runs import summarise_agents

REAL = Path(__file__).parent / "real"
HOTEL = (
    "consul frontend geo jaeger memcached-profile memcached-rate memcached-reserve mongodb-geo mongodb-profile "
    "mongodb-rate mongodb-recommendation mongodb-reservation mongodb-user profile rate recommendation reservation "
    "search user"
).split()


def unpacked(name: str, folder: Path) -> Path:
    for file in sorted((REAL / name).glob("*.gz")):
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return folder


@pytest.fixture(scope="module")
def openrca(tmp_path_factory: pytest.TempPathFactory) -> list[ScoredRun]:
    folder = tmp_path_factory.mktemp("openrca")
    import_runs("openrca", unpacked("openrca", folder), folder / "runs")
    return score_runs(folder / "runs")


def test_openrca_reaches_its_published_figure(openrca: list[ScoredRun]) -> None:
    row = summarise_agents(openrca)[0]
    assert (row.runs, row.recorded.k, row.success.k, row.agree) == (335, 38, 38, 335)
    assert f"{100 * row.success.value:.2f}" == "11.34"


def test_every_partial_score_of_openrca_is_the_recorded_one(openrca: list[ScoredRun]) -> None:
    for one in openrca:
        assert one.truth.recorded_value is not None
        assert one.value == pytest.approx(one.truth.recorded_value, abs=0.0051), one.run.run


def test_queries_for_several_causes_have_all_of_them(openrca: list[ScoredRun]) -> None:
    several = [one for one in openrca if len((one.truth.truth or {})["causes"]) > 1]
    assert len(several) > 50


@pytest.fixture(scope="module")
def sregym(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sregym")
    import_runs("atif", unpacked("sregym", folder), folder / "runs", candidates=HOTEL)
    return folder / "runs"


def test_the_diagnosis_and_not_the_second_submission_is_the_answer(sregym: Path) -> None:
    runs = {one.run.agent: one.run for one in score_runs(sregym) if one.run.status == "ok"}
    assert sorted(runs) == ["claudecode", "codex", "copilot", "gemini", "opencode", "stratus"]
    for run in runs.values():
        assert "recommendation" in (run.answer or {})["services"]
    assert {run.stop_reason for run in runs.values()} == {
        "the last solution sent by a shell",
        "the step named by Stratus",
    }


def test_text_without_a_candidate_is_unparsed(sregym: Path) -> None:
    unparsed = [one.run for one in score_runs(sregym) if one.run.status == "unparsed"]
    assert [(run.agent, run.answer) for run in unparsed] == [("stratus", {"text": "hostPort 9100 conflict"})]


def test_runs_keep_their_tokens_and_times(sregym: Path) -> None:
    runs = {one.run.agent: one.run for one in score_runs(sregym) if one.run.status == "ok"}
    claude = runs["claudecode"]
    assert (claude.prompt_tokens, claude.cached_tokens, claude.completion_tokens) == (410011, 392287, 2871)
    assert claude.tokens_source == "api"
    assert (runs["copilot"].prompt_tokens, runs["copilot"].completion_tokens) == (None, 1642)
    assert runs["stratus"].seconds is None
    assert (runs["opencode"].seconds or 0) > 60


def test_a_trajectory_is_kept_step_by_step(sregym: Path, tmp_path: Path) -> None:
    original = read_trajectory(unpacked("sregym", tmp_path) / "sregym-gemini.trajectory.json")
    run = next(one.run for one in score_runs(sregym) if one.run.agent == "gemini")
    assert read_trajectory(sregym / run.trajectory_path).steps == original.steps
