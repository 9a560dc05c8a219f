"""Episodes of unknown verdict get one from limits that were measured later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.collector.plans.plan import Plan
from faultset.collector.verdicts.calibration import Calibration, Window, to_json
from faultset.collector.verdicts.later_verdicts import judge_again, later_verdict
from faultset.core.command_line.console import root as faultset
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.episode import Episode
from faultset.datasets.format.truth import read_journal
from faultset.datasets.format.versions import create_version
from faultset.datasets.rewriting import write_again

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


def limits(episode: Episode, limit: float, **changes: str) -> Calibration:
    """Return a calibration of an episode's kind whose limit is a given one."""
    args = next(record["args"] for record in read_journal(episode.path) if record.get("verb") == "plan")
    plan = Plan.from_json(args)
    windows = tuple(Window(episode=f"e{i}", service="s", series="cpu", score=limit) for i in range(300))
    kind = {"app": plan.app, "platform": plan.platform, "load": plan.traffic.name} | changes
    return Calibration(step_s=plan.step_s, windows=windows, **kind)


@pytest.fixture
def unjudged(tmp_path: Path) -> Path:
    """The sample as it would be without any calibration: what clients did not feel is unknown."""
    dataset, folder = open_dataset(SAMPLE), tmp_path / "unjudged"
    for name in dataset.episodes:
        episode = dataset.episode(name)
        felt = episode.label.verdict not in ("latent", "silent")
        write_again(episode, folder, label=episode.label if felt else replace(episode.label, verdict="unknown"))
    create_version(folder, provenance={})
    return folder


def unknown_episode(folder: Path) -> Episode:
    dataset = open_dataset(folder)
    return next(e for e in map(dataset.episode, dataset.episodes) if e.label.verdict == "unknown")


def test_a_score_above_the_limit_is_latent_and_one_below_is_silent(unjudged: Path) -> None:
    episode = unknown_episode(unjudged)
    score = episode.evidence.loc[episode.evidence["check"] == "latent", "statistic"].max()
    label, evidence = later_verdict(episode, [limits(episode, score - 0.1)])
    assert label.verdict == "latent"
    latent = evidence[evidence["check"] == "latent"]
    assert latent["passed"].any()
    assert latent["detail"].str.contains(f"limit {score - 0.1:.1f}").all()
    label, evidence = later_verdict(episode, [limits(episode, score)])
    assert label.verdict == "silent"
    assert not evidence.loc[evidence["check"] == "latent", "passed"].any()


@pytest.mark.parametrize("change", [{"app": "shop"}, {"platform": "kubernetes"}, {"load": "ramp"}])
def test_limits_of_another_kind_change_nothing(unjudged: Path, change: dict[str, str]) -> None:
    episode = unknown_episode(unjudged)
    label, evidence = later_verdict(episode, [limits(episode, 0.0, **change)])
    assert label == episode.label
    assert evidence.equals(episode.evidence)


def test_all_but_the_unknown_verdicts_stay_and_the_dataset_is_sound(unjudged: Path, tmp_path: Path) -> None:
    before = open_dataset(unjudged)
    episode = unknown_episode(unjudged)
    made = judge_again(unjudged, tmp_path / "judged", calibrations=[limits(episode, 0.0)])
    for name in before.episodes:
        known, now = before.label(name), made.label(name)
        assert now == (replace(known, verdict="latent") if known.verdict == "unknown" else known)
        assert made.view(name).metrics().equals(before.view(name).metrics())
    assert made.provenance["judged_from"]["judged"] == 1
    assert [found for found in verify(made.root) if found.severity == "error"] == []


def test_the_command_says_how_many_have_got_a_verdict(unjudged: Path, tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(to_json([limits(unknown_episode(unjudged), 0.0)]))
    words = ["judge", str(unjudged), str(tmp_path / "out"), "--calibration", str(file)]
    done = CliRunner().invoke(faultset, words)
    assert done.exit_code == 0, done.output
    assert "1 episodes have got a verdict, 0 are unknown still" in done.output
    file.write_text("{}")
    done = CliRunner().invoke(faultset, [*words[:2], str(tmp_path / "again"), *words[3:]])
    assert done.exit_code == 3
    assert not (tmp_path / "again").exists()
