"""What `collect` says at its end of how often its tests fired without a fault."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.episode_queue import StartedEpisode, WaitingEpisode
from faultset.collector.campaigns.executors import CampaignProgress
from faultset.collector.campaigns.records import CampaignResult
from faultset.collector.cli import output
from faultset.collector.cli.collect import collect
from faultset.collector.cli.output import remaining_s, show_progress
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.mitigation.messages import MitigationResult
from faultset.collector.plans.plan import Plan, read_plan
from faultset.datasets.dataset import open_dataset
from tests.collector.plan_samples import PLAN

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.fixture(scope="module")
def result() -> CampaignResult:
    """The campaign whose episodes are those of the sample without a fault."""
    dataset = open_dataset(SAMPLE)
    plans = [read_plan(dataset.path(name)) for name in dataset.episodes if dataset.label(name).fault is None]
    return CampaignResult(
        root=SAMPLE,
        location=str(SAMPLE),
        campaign="c",
        version=dataset.version,
        plans=tuple(plans),
        episodes=tuple(
            EpisodeResult(plan=plan, outcome=EpisodeOutcome(episode=plan.episode), attempts=1, wall_s=60.0)
            for plan in plans
        ),
        unsupported={},
        interrupted=False,
        wall_s=60.0,
    )


Printed = pytest.CaptureFixture[str]


def said(result: CampaignResult, noisy: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> str:
    """Return what is printed when the SLI test has fired in the episodes of one kind."""
    kinds = {plan.episode: plan.no_fault_kind for plan in result.plans}

    def evidence(path: Path) -> pd.DataFrame:
        rows = {"check": ["sli", "latent"], "passed": [kinds[path.name] == noisy, False], "detail": ["", "limit 8.3"]}
        return pd.DataFrame(rows)

    monkeypatch.setattr(output, "read_evidence", evidence)
    output.print_summary(result)
    return capsys.readouterr().out


def test_what_clients_noticed_of_changes_is_no_false_alarm(
    result: CampaignResult, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    changed = sum(plan.no_fault_kind != "plain" for plan in result.plans)
    disturbed = sum(plan.no_fault_kind == "disturbed" for plan in result.plans)
    out = said(result, "disturbed", monkeypatch, capsys)
    assert "the test of client requests fired in 0, and the latent test on 0 of" in out
    assert "more than chance" not in out
    assert f"{changed} disturbed or sham episodes: clients noticed the change in {disturbed}" in out


def test_a_test_that_fires_on_plain_episodes_is_more_than_chance(
    result: CampaignResult, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    plain = sum(plan.no_fault_kind == "plain" for plan in result.plans)
    out = said(result, "plain", monkeypatch, capsys)
    assert f"{plain} plain episode: the test of client requests fired in {plain}" in out
    assert "more than chance; see truth/evidence.parquet" in out


BUSY = "the host is short of CPU: processes wait 97% of the time"


def test_why_episodes_wait_and_are_repeated_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = CampaignProgress(running={}, finished=[], waiting=3, wait_reason=BUSY)
    repeated = CampaignProgress(
        running={}, finished=[], waiting=3, wait_reason=BUSY, notices=["e-1: attempt 1 is void"]
    )
    with show_progress() as show:
        for state in (waiting, waiting, repeated, repeated):
            show(state)
    assert capsys.readouterr().err.splitlines() == [f"3 waiting episodes: {BUSY}", "e-1: attempt 1 is void"]


def start(plan: Plan, started_s: float) -> StartedEpisode:
    return StartedEpisode(waiting=WaitingEpisode(plan=plan), phase="fault", started=started_s)


@pytest.mark.parametrize(("taken_s", "left_s"), [(None, 225 + 225), (300.0, 275 + 300)])
def test_the_time_left_follows_from_what_runs_waits_and_was_measured(taken_s: float | None, left_s: float) -> None:
    running = {name: start(PLAN, started) for name, started in (("a", 0.0), ("b", 50.0))}
    outcome = EpisodeOutcome(episode=PLAN.episode)
    finished = [EpisodeResult(plan=PLAN, outcome=outcome, attempts=1, wall_s=taken_s)] if taken_s else []
    state = CampaignProgress(running=running, finished=finished, waiting=2)
    assert remaining_s(state, 50.0) == pytest.approx(left_s - 25 * (taken_s is None))


def test_a_recording_that_continues_needs_only_the_rest_of_its_time() -> None:
    state = CampaignProgress(running={"a": start(PLAN, 0.0)}, finished=[], waiting=0)
    whole_s = remaining_s(state, 50.0)
    assert remaining_s(replace(state, recorded_earlier_s={"a": 100.0}), 50.0) == pytest.approx(whole_s - 100)


def test_a_log_file_gets_a_line_of_progress_when_no_episode_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "QUIET_S", 0.0)
    with show_progress() as show:
        show(CampaignProgress(running={"a": start(PLAN, time.monotonic())}, finished=[], waiting=2))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("0/3, about ")
    assert line.endswith(" left; a fault")


def test_a_finished_campaign_has_no_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    ended = EpisodeResult(plan=PLAN, outcome=EpisodeOutcome(episode=PLAN.episode), attempts=1, wall_s=60.0)
    with show_progress() as show:
        show(CampaignProgress(running={}, finished=[ended], waiting=1))
        show(CampaignProgress(running={}, finished=[ended, replace_episode(ended)], waiting=0))
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("; about 60 s left")
    assert "left" not in last


def replace_episode(result: EpisodeResult) -> EpisodeResult:
    return replace(result, plan=replace(PLAN, episode="def"))


def test_a_reason_is_one_readable_line_and_whole_in_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = EpisodeOutcome(episode=PLAN.episode, failure="geo was not\nhealthy for a long time " * 20)
    void = EpisodeResult(plan=PLAN, outcome=outcome, attempts=2, wall_s=60.0)
    with show_progress() as show:
        show(CampaignProgress(running={}, finished=[void], waiting=0))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"[1/1] {PLAN.episode}  {PLAN.title}: failed: geo was not healthy for a long time geo was")
    assert line.endswith(" ...")
    assert len(line) < 150
    assert void.failure == outcome.failure


def test_a_repair_is_said_to_have_succeeded_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    made = MitigationResult(
        repair="do-nothing", success=False, parts=(), commands=(), manifest=True, mitigated_s=None, repair_s=None
    )
    outcome = EpisodeOutcome(episode=PLAN.episode, mitigations=(made,))
    ended = EpisodeResult(plan=PLAN, outcome=outcome, attempts=1, wall_s=60.0)
    with show_progress() as show:
        show(CampaignProgress(running={}, finished=[ended], waiting=0))
    assert capsys.readouterr().err == f"[1/1] {PLAN.episode}  {PLAN.title}: not repaired in 60 s\n"


@pytest.mark.parametrize("jobs", ["0", "-1", "many", "1.5", "99999"])
def test_a_number_of_jobs_that_cannot_be_meant_is_one_sentence(jobs: str) -> None:
    found = CliRunner().invoke(collect, ["--faults", "all", "--apps", "hotel", "--jobs", jobs])
    assert found.exit_code == 2
    assert f"must be a number from 1 to 9999, or auto, but is '{jobs}'" in found.output


@pytest.mark.parametrize("jobs", [[], ["-j", "auto"], ["-j", "3"]])
def test_jobs_are_a_number_or_auto(jobs: list[str]) -> None:
    found = CliRunner().invoke(collect, ["--faults", "pod-kill", "--apps", "hotel", "--dry-run", *jobs])
    assert found.exit_code == 0, found.output
