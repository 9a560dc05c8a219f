"""What `collect` says at its end of how often its tests fired without a fault."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from faultset.collector.campaigns.episode_processes import EpisodeResult
from faultset.collector.campaigns.records import CampaignResult
from faultset.collector.cli import output
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import read_plan
from faultset.datasets.dataset import open_dataset

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
