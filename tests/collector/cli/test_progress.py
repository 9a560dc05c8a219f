"""What `collect` says while it runs: why episodes wait, and why one is repeated."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from faultset.collector.campaigns.scheduler import CampaignProgress
from faultset.collector.cli.collect import collect
from faultset.collector.cli.progress import show_progress

BUSY = "the host is short of CPU: processes wait 97% of the time"


def test_why_episodes_wait_and_are_repeated_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = CampaignProgress(running={}, finished=[], waiting=3, held_back=BUSY)
    repeated = CampaignProgress(running={}, finished=[], waiting=3, held_back=BUSY, notices=["e-1: attempt 1 is void"])
    with show_progress() as show:
        for state in (waiting, waiting, repeated, repeated):
            show(state)
    assert capsys.readouterr().err.splitlines() == [f"3 episodes wait: {BUSY}", "e-1: attempt 1 is void"]


@pytest.mark.parametrize("jobs", ["0", "-1", "many", "1.5", "99999"])
def test_a_number_of_jobs_that_cannot_be_meant_is_one_sentence(jobs: str) -> None:
    found = CliRunner().invoke(collect, ["--faults", "all", "--apps", "hotel", "--jobs", jobs])
    assert found.exit_code == 2
    assert f"a number of episodes from 1 to 9999, or auto, is needed; found '{jobs}'" in found.output


@pytest.mark.parametrize("jobs", [[], ["-j", "auto"], ["-j", "3"]])
def test_jobs_are_a_number_or_auto(jobs: list[str]) -> None:
    found = CliRunner().invoke(collect, ["--faults", "pod-kill", "--apps", "hotel", "--dry-run", *jobs])
    assert found.exit_code == 0, found.output
