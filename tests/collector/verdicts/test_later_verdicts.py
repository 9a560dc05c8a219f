"""Episodes of unknown verdict get one from limits that were measured later."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.collector.plans.plan import read_plan
from faultset.collector.platforms.hosts import Phases
from faultset.collector.verdicts.latent import Calibration, Window, to_json
from faultset.collector.verdicts.later_verdicts import judge_again, judge_later, update_accepted_names
from faultset.core.console import root as faultset
from faultset.core.times import SECOND_NS
from faultset.datasets.checks.verification import verify
from faultset.datasets.compaction import copy_episode
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.format.cards import read_false_alarms
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.recording import Recording
from tests.collector.plan_samples import PLAN
from tests.datasets.recorded_samples import at, context, incident

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


SERVICES = ("front", "geo", "rate", "user", *(f"store-{number}" for number in range(8)))
PHASES = Phases(warmup_s=1, baseline_s=60, fault_s=60, cooldown_s=1)
PLANNED = replace(PLAN, fault=None, target=None, no_fault_kind="plain", phases=PHASES, step_s=5)
LENGTH_S = 1100


def unknown(name: str, start_s: float, length_s: float = 30, **changes: Any) -> dict[str, Any]:
    return incident(name, start_s, length_s, verdict="unknown", first_manifest=None, **changes)


INCIDENTS = [
    unknown("a", 120),
    unknown("b", 250, targets=["user"]),
    unknown("c", 380),
    unknown("d", 390, targets=["user"]),
    unknown("e", 520),
    unknown("f", 650),
    incident("9", 780, 30),
]
"""A moved target, one that did not move, two that overlap, one in void time, one with new pods, and a manifest one."""
DECOYS = [
    {"decoy": "restart", "service": service, "start": at(second), "end": at(second), "parameters": parameters}
    for service, second, parameters in (
        ("geo", 660, {"replaces_pods_of": "geo"}),
        ("user", 85, {"replaces_pods_of": "user"}),
        ("user", 260, {"config_map": "bare"}),
    )
]
VOIDS = [{"start": at(525), "end": at(530), "reason": "host", "detail": "late"}]


def samples(seed: int, moved: tuple[int, int] | None, length_s: int) -> pa.Table:
    """Return a level of every service with noise; that of geo is higher for some seconds."""
    rng, times = np.random.default_rng(seed), np.arange(0, length_s, 5)
    tables = []
    for service in SERVICES:
        values = 50 + rng.normal(0, 1, len(times))
        if service == "geo" and moved:
            values[(times >= moved[0]) & (times < moved[1])] += 40
        words = {"service": service, "pod": f"{service}-1", "container": service, "labels": "{}"}
        words |= {"metric": "container_memory_rss", "kind": "gauge"}
        columns = {name: pa.array([word] * len(times)) for name, word in words.items()}
        time = pa.array([at(second + 0.5) for second in times.tolist()], pa.timestamp("ns", "UTC"))
        tables.append(pa.table({"time": time, **columns, "value": pa.array(values)}))
    return pa.concat_tables(tables)


def requests(length_s: int) -> pa.Table:
    seconds = list(range(0, length_s, 2))
    count = len(seconds)
    times = pa.array([at(second) for second in seconds], pa.timestamp("ns", "UTC"))
    return pa.table(
        {
            "scheduled": times,
            "sent": times,
            "endpoint": pa.array(["GET /"] * count),
            "latency_ns": pa.array([20_000_000] * count),
            "status": pa.array([200] * count, pa.int32()),
            "outcome": pa.array(["ok"] * count),
        }
    )


def write_recording(root: Path, name: str, seed: int, *, moved: bool, length_s: int = LENGTH_S, **truth: Any) -> None:
    """Write a recording in one chunk, with the plan in its journal."""
    writer = RecordingWriter(root, context(name, services=SERVICES))
    plan = json.dumps({"state": "note", "verb": "plan", "args": json.loads(PLANNED.to_json())})
    tables = {"metrics": [samples(seed, (120, 150) if moved else None, length_s)], "requests": [requests(length_s)]}
    writer.append(at(0), at(length_s), tables, truth=truth, journal=plan + "\n")


@pytest.fixture(scope="module")
def unjudged_recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recording with incidents and one of health."""
    root = tmp_path_factory.mktemp("unjudged")
    latent = [
        {"incident": i["incident"], "check": "latent", "subject": "x", "passed": False, "detail": "no limit"}
        for i in INCIDENTS
    ]
    write_recording(root, "r1", 1, moved=True, incidents=INCIDENTS, evidence=latent, decoys=DECOYS, voids=VOIDS)
    write_recording(root, "r2", 2, moved=False, length_s=400)
    create_version(root, provenance={})
    return root


@pytest.fixture(scope="module")
def judged(unjudged_recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return judge_again(unjudged_recordings, tmp_path_factory.mktemp("out") / "judged")


def latent_row(recording: Recording[Dataset], name: str) -> dict[str, Any]:
    evidence = recording.evidence()
    rows = evidence[(evidence["incident"] == name) & (evidence["check"] == "latent")]
    assert len(rows) == 1, "the new row replaces the old one"
    return {str(name): value for name, value in rows.iloc[0].items()}


def test_a_target_that_moved_is_latent_and_one_that_did_not_is_silent(judged: Dataset) -> None:
    recording = judged.recording("r1")
    verdicts = recording.incidents()["verdict"].to_dict()
    assert verdicts == {"a": "latent", "b": "silent", "9": "manifest"} | dict.fromkeys("cdef", "unknown")
    row = latent_row(recording, "a")
    assert row["passed"]
    assert row["p_value"] < 0.01
    assert "which 1 % of" in row["detail"]
    assert "service windows at" in row["detail"]
    assert not latent_row(recording, "b")["passed"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("c", "another incident overlaps"), ("e", "overlaps void time"), ("f", "replaced the target's pods")],
)
def test_an_incident_that_cannot_be_judged_says_why(judged: Dataset, name: str, reason: str) -> None:
    assert reason in latent_row(judged.recording("r1"), name)["detail"]


def test_telemetry_and_manifest_incidents_stay_and_the_dataset_is_sound(
    unjudged_recordings: Path, judged: Dataset
) -> None:
    before = open_dataset(unjudged_recordings)
    changed = {
        name
        for recording, files in judged.recording_files.items()
        for name, record in files.items()
        if record != before.recording_files[recording][name]
    }
    assert changed == {f"chunks/0001/truth/{table}.parquet" for table in ("incidents", "evidence")}
    assert [finding for finding in verify(judged.root) if finding.severity == "error"] == []
    assert judged.recording_splits == before.recording_splits


def test_false_alarms_are_measured_on_both_recordings_and_are_on_the_card(judged: Dataset) -> None:
    (alarms,) = read_false_alarms(judged.provenance)
    assert (alarms.recordings, alarms.client_alarms) == (2, 0)
    assert alarms.windows > 12
    assert alarms.service_windows == len(SERVICES) * alarms.windows - 1, "user got new pods in one window"
    card = (judged.root / "README.md").read_text()
    assert "Verdicts judged after the recording" in card
    assert f"0 of {alarms.windows} (0.00%" in card


def test_with_too_few_healthy_windows_incidents_stay_unknown(tmp_path: Path) -> None:
    write_recording(
        tmp_path / "one", "r1", 1, moved=True, incidents=INCIDENTS[:1], voids=[VOIDS[0] | {"end": at(1090)}]
    )
    create_version(tmp_path / "one", provenance={})
    result = CliRunner().invoke(faultset, ["judge", str(tmp_path / "one"), str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "0 incidents with a new verdict, 1 of 1 still unknown" in result.output
    assert (
        "99 healthy windows are needed, but there are"
        in latent_row(open_dataset(tmp_path / "out").recording("r1"), "a")["detail"]
    )
