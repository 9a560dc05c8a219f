"""Episodes of unknown verdict get one from limits that were measured later."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.collector.plans.plan import read_plan
from faultset.collector.verdicts.latent import Calibration, Window, to_json
from faultset.collector.verdicts.later_verdicts import judge_again, judge_later, update_accepted_names
from faultset.core.console import root as faultset
from faultset.core.times import SECOND_NS
from faultset.datasets.checks.verification import verify
from faultset.datasets.compaction import copy_episode
from faultset.datasets.dataset import Episode, open_dataset
from faultset.datasets.format.versions import create_version

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODES = ("0d3c530732fb", "3b2068eeb801", "471b137ed15a")
"""Without a fault, a manifest redeploy-without-pv, and a latent memory-leak."""


def limits(episode: Episode, limit: float, **changes: str) -> Calibration:
    """Return a calibration of an episode's kind whose limit is a given one."""
    plan = read_plan(episode.path)
    windows = tuple(Window(episode=f"e{i}", service="s", series="cpu", score=limit) for i in range(300))
    kind = {"app": plan.app, "platform": plan.platform, "load": plan.traffic.name} | changes
    return Calibration(step_s=plan.step_s, windows=windows, **kind)


@pytest.fixture(scope="module")
def unjudged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes as they would be without any calibration: what clients did not feel is unknown. No test changes them."""
    dataset, folder = open_dataset(SAMPLE), tmp_path_factory.mktemp("judge") / "unjudged"
    for name in EPISODES:
        episode = dataset[name]
        felt = episode.label.verdict not in ("latent", "silent")
        copy_episode(episode, folder, label=episode.label if felt else replace(episode.label, verdict="unknown"))
    create_version(folder, provenance={})
    return folder


def unknown_episode(folder: Path) -> Episode:
    dataset = open_dataset(folder)
    return next(e for e in dataset if e.label.verdict == "unknown")


def test_a_score_above_the_limit_is_latent_and_one_below_is_silent(unjudged: Path) -> None:
    episode = unknown_episode(unjudged)
    score = episode.evidence.loc[episode.evidence["check"] == "latent", "statistic"].max()
    label, evidence = judge_later(episode, [limits(episode, score - 0.1)])
    assert label.verdict == "latent"
    latent = evidence[evidence["check"] == "latent"]
    assert latent["passed"].any()
    assert latent["detail"].str.contains(f"limit {score - 0.1:.1f}").all()
    label, evidence = judge_later(episode, [limits(episode, score)])
    assert label.verdict == "silent"
    assert not evidence.loc[evidence["check"] == "latent", "passed"].any()


def with_messages(episode: Episode, folder: Path, *, processed_until_ns: int) -> Episode:
    """Write an episode into a dataset of its own, with an order every half second and a service that processes them."""
    copied = folder / "episodes" / episode.id
    shutil.copytree(episode.path, copied)
    path = next(copied.rglob("spans*.parquet"))
    spans = pq.read_table(path)
    rows = []
    for number, at_ns in enumerate(range(episode.label.view_start_ns, episode.label.view_end_ns, SECOND_NS // 2)):
        row = {"episode": episode.id, "time": at_ns, "trace_id": f"{number:032x}", "duration_ns": 1_000_000}
        row |= {
            "status": "unset",
            "reported_service": "queue",
            "attributes": json.dumps({"messaging.destination.name": "orders"}),
        }
        sent = {"span_id": f"a{number}", "service": "frontend", "operation": "orders publish", "kind": "producer"}
        taken = {"span_id": f"b{number}", "parent_span_id": f"a{number}", "service": "rate", "operation": "process"}
        rows += [row | sent] + [row | taken | {"kind": "consumer"}] * (at_ns < processed_until_ns)
    added = pa.Table.from_pylist(rows, schema=spans.schema)
    merged = pa.concat_tables([spans, added]).sort_by("time")
    pq.write_table(merged, path)
    create_version(folder, provenance={})
    return open_dataset(folder)[episode.id]


def test_a_fault_that_only_left_messages_unprocessed_is_manifest(unjudged: Path, tmp_path: Path) -> None:
    episode = unknown_episode(unjudged)
    onset_ns = episode.label.inject_start_ns
    assert onset_ns is not None
    stopped = with_messages(episode, tmp_path / "stopped", processed_until_ns=onset_ns + SECOND_NS)
    label, evidence = judge_later(stopped, [])
    assert label.verdict == "manifest"
    assert label.first_manifest_ns is not None
    assert label.first_manifest_ns > onset_ns
    assert "orders to rate completion" in set(evidence.loc[evidence["passed"], "subject"])
    assert set(evidence["check"]) == set(episode.evidence["check"])
    goes_on = with_messages(episode, tmp_path / "goes-on", processed_until_ns=episode.label.view_end_ns)
    assert judge_later(goes_on, [])[0].verdict == "unknown"


def test_a_root_cause_is_found_by_the_names_that_this_release_accepts(unjudged: Path) -> None:
    dataset = open_dataset(unjudged)
    episode = next(e for e in dataset if e.label.fault == "redeploy-without-pv")
    (before,) = episode.label.root_causes
    earlier = replace(before, accepted=(before.service, "whoever-uses-it"))
    plan = read_plan(episode.path)
    (found,) = update_accepted_names(replace(episode.label, root_causes=(earlier,)), plan).root_causes
    assert found == replace(before, accepted=(before.service,))


@pytest.mark.parametrize("change", [{"app": "shop"}, {"platform": "kubernetes"}, {"load": "ramp"}])
def test_limits_of_another_kind_change_nothing(unjudged: Path, change: dict[str, str]) -> None:
    episode = unknown_episode(unjudged)
    label, evidence = judge_later(episode, [limits(episode, 0.0, **change)])
    assert replace(label, root_causes=episode.label.root_causes) == episode.label
    assert evidence.equals(episode.evidence)


def test_all_but_the_unknown_verdicts_stay_and_the_dataset_is_sound(unjudged: Path, tmp_path: Path) -> None:
    before = open_dataset(unjudged)
    episode = unknown_episode(unjudged)
    made = judge_again(unjudged, tmp_path / "judged", calibrations=[limits(episode, 0.0)])
    for name in before.episodes:
        known, now = before.label(name), made.label(name)
        known = replace(known, root_causes=now.root_causes)
        assert now == (replace(known, verdict="latent") if known.verdict == "unknown" else known)
        assert made.view(name).metrics().equals(before.view(name).metrics())
    assert made.provenance["judged_from"]["judged"] == 1
    assert 'pretty_name: "judged"' in (made.root / "README.md").read_text(), "its card has the folder's name"
    assert [found for found in verify(made.root) if found.severity == "error"] == []


def test_the_command_says_how_many_have_got_a_verdict(unjudged: Path, tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(to_json([limits(unknown_episode(unjudged), 0.0)]))
    words = ["judge", str(unjudged), str(tmp_path / "out"), "--calibration", str(file)]
    done = CliRunner().invoke(faultset, words)
    assert done.exit_code == 0, done.output
    assert "1 episode with a new verdict, 0 still unknown" in done.output
    file.write_text("{}")
    done = CliRunner().invoke(faultset, [*words[:2], str(tmp_path / "again"), *words[3:]])
    assert done.exit_code == 3
    assert not (tmp_path / "again").exists()
