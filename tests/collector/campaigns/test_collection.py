"""`collect` from Python: typed results, no output of its own, progress by callback."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import faultset.collector
from faultset.collector import Plan, collect, make_request, plan_campaign
from faultset.collector.campaigns import collection
from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.records import as_options, read_campaign
from faultset.collector.cli.campaigns import format_config, read_config
from faultset.collector.cli.collect import collect as collect_command
from faultset.collector.cli.output import print_summary
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.recorded_plans import read_recorded_plans
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.versions import create_version
from tests.collector.fake_episodes import FakeExecutor

REQUEST = make_request(faults=["target-port", "pod-kill"], apps=["hotel"], normal=1, profile="quick")


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> dict[str, EpisodeOutcome]:
    """Replace the processes of episodes; what is put into the dict is how an episode ends."""
    outcomes: dict[str, EpisodeOutcome] = {}
    ran: list[str] = []

    def end(waiting: WaitingEpisode, root: Path) -> EpisodeOutcome:
        episode = waiting.plan.episode
        outcome = outcomes.get(episode, EpisodeOutcome(episode=episode, verdict="manifest"))
        if not outcome.failure:
            (root / "episodes" / episode).mkdir(parents=True)
            ran.append(episode)
        return outcome

    FakeExecutor.install(monkeypatch, end)

    def make_version(root: Path, **rest: Any) -> str:
        ran.clear()
        return "1.0.0"

    monkeypatch.setattr(collection, "create_version", make_version)
    monkeypatch.setattr(collection, "list_versions", lambda root: [])
    monkeypatch.setattr(collection, "_has_version", lambda root, episodes: not ran)

    def find_outcome(root: Path, plan: Plan) -> EpisodeOutcome | None:
        is_present = (root / "episodes" / plan.episode).exists()
        return EpisodeOutcome(episode=plan.episode, verdict="latent") if is_present else None

    monkeypatch.setattr(collection, "find_outcome", find_outcome)
    return outcomes


def test_a_dataset_is_collected_again_by_the_same_plans_with_the_same_ids(failures: dict, tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "datasets" / "sample"
    result = collect(as_in=source, out=tmp_path / "data")
    assert result.plans == read_recorded_plans(source)
    record = read_campaign(tmp_path / "data", result.campaign)
    assert (record["request"], record["as_in"], as_options(record)) == (None, str(source), {"as-in": str(source)})
    again = collect(as_in=source, out=tmp_path / "data", fresh=True)
    assert [replace(plan, episode="") for plan in again.plans] == [replace(plan, episode="") for plan in result.plans]
    assert {plan.episode for plan in again.plans}.isdisjoint(plan.episode for plan in result.plans)


def test_a_campaign_returns_a_result_for_each_episode(failures: dict, tmp_path: Path, capfd) -> None:
    seen: list[int] = []
    result = collect(REQUEST, out=tmp_path / "data", progress=lambda state: seen.append(len(state.finished)))
    assert [one.episode for one in result.episodes] == [plan.episode for plan in plan_campaign(REQUEST)]
    assert {one.verdict for one in result.episodes} == {"manifest"}
    assert (result.version, result.failures, result.interrupted, {*seen}) == ("1.0.0", {}, False, {0, 1, 2, 3})
    result.raise_for_failures()
    assert capfd.readouterr() == ("", "")


def test_keyword_arguments_stand_for_a_request(failures: dict, tmp_path: Path) -> None:
    options = {"faults": ["target-port", "pod-kill"], "apps": ["hotel"], "normal": 1, "profile": "quick"}
    assert collect(out=tmp_path / "data", **options).plans == plan_campaign(REQUEST)


def test_a_campaign_is_resumed_and_a_fresh_one_is_not(failures: dict, tmp_path: Path) -> None:
    first = collect(REQUEST, out=tmp_path)
    again = collect(REQUEST, out=tmp_path)
    assert [(one.attempts, one.verdict) for one in again.episodes] == [(0, "latent")] * 3
    assert again.version == ""  # nothing was added
    fresh = collect(REQUEST, out=tmp_path, fresh=True)
    assert not {one.episode for one in fresh.episodes} & {one.episode for one in first.episodes}
    assert fresh.campaign == f"{first.campaign}-2"


def test_failures_are_in_the_result_and_in_the_campaigns_file(failures: dict, tmp_path: Path) -> None:
    bad = plan_campaign(REQUEST)[1].episode
    logs = tmp_path / ".failed" / bad
    failures[bad] = EpisodeOutcome(episode=bad, failure="it broke", exit_code=4, logs=logs)
    result = collect(REQUEST, out=tmp_path)
    assert result.failures == {bad: "it broke"}
    record = json.loads((tmp_path / "campaigns" / f"{result.campaign}.json").read_text())
    assert record["failures"] == {bad: "it broke"}
    with pytest.raises(PlatformError, match=rf"1 of 3 episodes failed .*it broke \(logs in {logs}\)"):
        result.raise_for_failures()
    failures[bad] = EpisodeOutcome(episode=bad, failure="no space", exit_code=3)
    with pytest.raises(DataError, match="no space"):
        collect(REQUEST, out=tmp_path).raise_for_failures()


def test_a_campaign_without_a_single_episode_is_said_to_have_no_version(
    failures: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failures |= {
        plan.episode: EpisodeOutcome(episode=plan.episode, failure="no space", exit_code=3)
        for plan in plan_campaign(REQUEST)
    }
    print_summary(collect(REQUEST, out=tmp_path))
    assert f"0 of 3 episodes in 0.0 min; dataset {tmp_path}, without a version\n" in capsys.readouterr().out


def test_an_unknown_name_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='did you mean "target-port"'):
        collect(faults=["target-prot"], apps=["hotel"], out=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_an_injector_among_the_settings_is_refused_lest_no_plan_says_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="injector must be a keyword argument, but is among the settings"):
        collect(faults=["noop"], apps=["hotel"], out=tmp_path, settings={"injector": "chaos-mesh"})


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(faultset.collector, name) for name in faultset.collector.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        faultset.collector.nothing  # noqa: B018


@pytest.mark.parametrize("fails", ["write_campaign", "remove_abandoned", "record_failures", "create_version"])
def test_a_full_disk_at_every_write_is_one_sentence_and_the_lock_is_given_back(
    fails: str, failures: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "data" / "x"))

    with monkeypatch.context() as patch:
        patch.setattr(collection, fails, full)
        with pytest.raises(DataError, match=r"x cannot be written .*run the same command again"):
            collect(REQUEST, out=tmp_path / "data")
    assert not (tmp_path / "data" / ".lock").exists()


def test_a_campaign_of_two_faults_at_once_is_planned_stored_resumed_and_repeated_as_a_file(
    failures: dict, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "faults": ["target-port", "pod-kill"],
        "apps": ["hotel"],
        "normal": 1,
        "profile": "quick",
    }
    first = collect(out=tmp_path, concurrent=2, **options)
    assert [plan.fault_name for plan in first.plans if plan.fault] == ["pod-kill + target-port"]
    again = collect(out=tmp_path, concurrent=2, **options)
    assert [one.attempts for one in again.episodes] == [0, 0]
    record = read_campaign(tmp_path, first.campaign)
    assert [Plan.from_json(plan) for plan in record["plans"]] == list(first.plans)
    (tmp_path / "campaign.yaml").write_text(format_config(as_options(record)))
    assert read_config(tmp_path / "campaign.yaml", {"concurrent", *as_options(record)})["concurrent"] == 2
    alone = collect(out=tmp_path, **options)
    assert alone.campaign != first.campaign
    assert not {plan.episode for plan in alone.plans} & {plan.episode for plan in first.plans}


def test_a_fault_that_was_only_planned_with_one_that_cannot_be_injected_is_named(
    failures: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        collection, "unsupported_faults", lambda host, specs: {"network-loss": "the kernel has no netem"}
    )
    said: list[str] = []
    result = collect(faults=["all"], apps=["hotel"], normal=0, concurrent=2, out=tmp_path, notify=said.append)
    injected = {one.fault for plan in result.plans for one in plan.faults}
    left_out = [sentence for sentence in said if sentence.startswith("left out: ")]
    assert "network-loss" not in injected
    assert len(left_out) == 2, left_out
    assert "every plan with it also has a fault that cannot be injected here" in left_out[1]
    assert left_out[1].split()[2].rstrip(",") not in injected


def test_episodes_that_no_version_has_get_one_even_if_nothing_is_left_to_run(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_example_dataset(root, episodes=3, baseline_s=10, fault_s=10)
    here = open_dataset(root).episodes
    assert collection._has_version(root, here)
    assert collection._has_version(root, [])
    create_version(root, episodes=here[:1], provenance={})
    assert collection._has_version(root, here)
    (root / "versions" / "1.0.0.json").unlink()
    assert not collection._has_version(root, here)


@pytest.mark.parametrize(
    ("out", "scheduler", "message"),
    [
        (
            "memory://recordings",
            None,
            "--out must be a folder with --recording, but is memory://recordings. Record into",
        ),
        (None, "tcp://127.0.0.1:1", "--scheduler is for episodes, not for --recording. Leave it out"),
    ],
)
def test_recordings_elsewhere_are_refused_by_the_option(
    tmp_path: Path, out: str | None, scheduler: str | None, message: str
) -> None:
    request = make_request(faults=["target-port"], apps=["hotel"], recording_s=3600.0, incidents=1)
    with pytest.raises(UsageError) as error:
        collect(request, out=out or str(tmp_path / "out"), scheduler=scheduler)
    assert message in str(error.value)
    assert [*tmp_path.iterdir()] == []


CONFIG = """
faults: [target-port, pod-kill]
apps: hotel
seed: 7
profile: quick
healthy: 50s
normal: 2
"""


def planned(*words: str) -> list[dict]:
    done = CliRunner().invoke(collect_command, [*words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_campaign_file_stands_for_its_options(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CONFIG)
    words = "--faults target-port,pod-kill --apps hotel --seed 7 --profile quick --healthy 50s --normal 2".split()
    assert planned("--config", str(path)) == planned(*words)


def test_options_on_the_command_line_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(CONFIG)
    rows = planned("--config", str(path), "--faults", "pod-failure", "--normal", "0")
    assert [row["fault"] for row in rows] == ["pod-failure"]
    assert rows[0]["view_s"] == 95.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fualts: all", 'unknown option "fualts"; did you mean "faults" or "faulty"?'),
        ("- all", "must be a mapping of options of collect, but is a list"),
        ("faults: {a: b}", 'option "faults" in campaign file'),
        ("faults: [", "is not YAML"),
        ("{faults: all, apps: hotel, seed: many}", "'many' is not a valid integer"),
        ("{faults: all, apps: hotel, healthy: 5 parsecs}", "is not a duration"),
    ],
)
def test_a_wrong_campaign_file_gets_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "campaign.yaml"
    path.write_text(text)
    done = CliRunner().invoke(collect_command, ["--config", str(path), "--out", str(tmp_path / "data")])
    assert done.exit_code == 2, done.output
    assert sentence in done.output
    assert not (tmp_path / "data").exists()


def test_a_campaign_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(collect_command, ["--config", str(tmp_path / "none.yaml")])
    assert done.exit_code == 2
    assert "cannot be read (No such file or directory)" in done.output
