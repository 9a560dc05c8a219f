"""Recordings: incidents, chunks, and the spans and log lines that are kept."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.episodes import fault_steps, health
from faultset.collector.episodes.actions import EpisodeOptions
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.timeline import PlannedIncident, RecordingPlan
from faultset.collector.platforms.base import HostLoad
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.hosts import Phases
from faultset.collector.platforms.journal import Journal
from faultset.collector.recordings.chunks import request_counts, sample_logs, sample_spans
from faultset.collector.recordings.runner import RecordingRunner
from faultset.core.times import SECOND_NS
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.context import Sampling
from faultset.datasets.format.recordings import read_chunks
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.recording import Recording
from tests.collector.plan_samples import PLAN
from tests.collector.virtual_clock import VirtualClock


def incident(at_s: float, fault: str, target: str, length_s: float = 40.0, **changes: Any) -> PlannedIncident:
    return PlannedIncident(at_s=at_s, length_s=length_s, fault=fault, target=target, seed=3, **changes)


RECORDING = RecordingPlan(
    duration_s=300.0,
    chunk_s=60.0,
    incidents=(incident(50, "target-port", "geo"), incident(200, "missing-service", "rate")),
    sampling=Sampling(traces=0.5),
)
RECORDED = replace(
    PLAN,
    fault=None,
    target=None,
    no_fault_kind="plain",
    phases=Phases(warmup_s=4, baseline_s=40, fault_s=40, cooldown_s=1),
    rate_rps=2.0,
    recording=RECORDING,
)


@pytest.fixture(autouse=True)
def short_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SETTLE_NS", SECOND_NS // 10)
    monkeypatch.setattr(fault_steps, "RECOVERY_WINDOW_S", 2.0)


def record(
    folder: Path, plan: Plan = RECORDED, clock: VirtualClock | None = None, **options: Any
) -> tuple[EpisodeOutcome, FakePlatform]:
    """Run one segment; options are those of the runner, and `platform`, called with the platform before the run."""
    change: Callable[[FakePlatform], None] = options.pop("platform", lambda platform: None)
    clock = clock or VirtualClock()
    folder.mkdir(exist_ok=True)
    (folder / "journal.jsonl").unlink(missing_ok=True)
    platform = FakePlatform(load_app("hotel"), Journal(folder / "journal.jsonl"))
    start_ns = clock.time_ns() - 5 * SECOND_NS
    platform.rows["requests"] = [
        {
            "scheduled": start_ns + number * SECOND_NS // 2,
            "sent": start_ns + number * SECOND_NS // 2,
            "endpoint": "GET /hotels",
            "latency_ns": 10_000_000,
            "status": 200,
            "outcome": "ok",
        }
        for number in range(700)
    ]
    change(platform)
    runner = RecordingRunner(plan, platform, platform.journal, folder / "data", EpisodeOptions(clock=clock, **options))
    return runner.run(), platform


def opened(folder: Path) -> Recording[Any]:
    create_version(folder / "data", provenance={})
    (recording,) = open_dataset(folder / "data").recordings()
    return recording


def test_a_recording_has_chunks_incidents_and_load(tmp_path: Path) -> None:
    outcome, platform = record(tmp_path)
    assert outcome.failure == ""
    recording = opened(tmp_path)
    assert recording.duration_s == 300
    assert len(recording.view.chunks) == 5
    frame = recording.incidents()
    assert list(frame["fault"]) == ["target-port", "missing-service"]
    assert [round((start - recording.start_ns) / SECOND_NS) for start in frame["start_ns"]] == [50, 200]
    # until the undo, and until the application was seen to be healthy
    assert frame["duration_s"].between(42, 46).all()
    assert {record.get("scope") for record in recording.journal} >= set(frame.index)
    assert recording.load()["requests"].sum() == recording.table("requests").num_rows == 600
    assert set(recording.evidence()["check"]) >= {"injection", "recovery"}
    assert platform.torn_down
    assert not [finding for finding in verify(tmp_path / "data") if finding.severity == "error"]


def test_an_incident_is_undone_while_another_one_acts(tmp_path: Path) -> None:
    overlapping = (incident(50, "target-port", "geo", 80), incident(70, "missing-service", "rate", 20, overlaps=True))
    record(tmp_path, replace(RECORDED, recording=replace(RECORDING, incidents=overlapping)))
    first, second = opened(tmp_path).truth.incidents
    assert (first.fault, second.fault) == ("target-port", "missing-service")
    assert second.recover_done_ns is not None
    assert first.recover_start_ns is not None
    assert second.recover_done_ns < first.recover_start_ns
    # without a healthy time before it, nothing can be compared
    assert second.verdict == "unknown"


def test_a_stopped_recording_continues_with_a_new_segment(tmp_path: Path) -> None:
    clock = VirtualClock()
    stop_ns = clock.time_ns() + 220 * SECOND_NS
    outcome, _ = record(tmp_path, clock=clock, interrupted=lambda: clock.time_ns() > stop_ns)
    assert outcome.interrupted
    before = opened(tmp_path)
    assert 200 < before.duration_s < 220
    assert before.truth.incidents[1].recover_start_ns is None
    clock.passed_ns += 100 * SECOND_NS
    outcome, _ = record(tmp_path, clock=clock)
    assert outcome.failure == ""
    after = opened(tmp_path)
    assert after.duration_s == pytest.approx(300, abs=1)
    assert [segment.length_s for segment in after.view.segments] == pytest.approx(
        [before.duration_s, 300 - before.duration_s], abs=1
    )
    assert set(after.voids()["reason"]) == {"interrupted"}
    assert list(after.incidents()["is_scored"]) == [True, False]
    assert not [finding for finding in verify(tmp_path / "data") if finding.severity == "error"]


def test_an_incident_that_was_interrupted_is_void_until_the_end_of_its_segment(tmp_path: Path) -> None:
    clock = VirtualClock()
    for length_s in (220, 60):  # the second incident is active at the first stop, none at the second
        stop_ns = clock.time_ns() + length_s * SECOND_NS
        record(tmp_path, clock=clock, interrupted=lambda stop_ns=stop_ns: clock.time_ns() > stop_ns)
        clock.passed_ns += 100 * SECOND_NS
    record(tmp_path, clock=clock)
    recording = opened(tmp_path)
    first, second, _ = recording.view.segments
    (void,) = recording.voids().itertuples()
    assert void.end == pd.Timestamp(first.end_ns, tz="UTC") < pd.Timestamp(second.start_ns, tz="UTC")
    assert void.detail == "the recording was interrupted during missing-service on rate"


def test_a_clock_that_jumps_ends_the_segment_with_intact_data(tmp_path: Path) -> None:
    clock = VirtualClock()
    clock.set_after_ns, clock.set_by_ns = 150 * SECOND_NS, 3600 * SECOND_NS
    outcome, _ = record(tmp_path, clock=clock)
    assert "the machine's clock must not jump, but jumped by +3600.0 s" in outcome.failure
    assert outcome.retriable
    assert 100 < opened(tmp_path).duration_s < 150
    assert not [finding for finding in verify(tmp_path / "data") if finding.severity == "error"]


def test_a_full_disk_ends_the_recording_with_intact_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from faultset.datasets.format import episodes

    write = episodes.write_parquet

    def fill_up(path: Path, *arguments: Any, **options: Any) -> None:
        if "0003" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *arguments, **options)

    monkeypatch.setattr(episodes, "write_parquet", fill_up)
    outcome, platform = record(tmp_path)
    assert outcome.failure.startswith("no space left on the disk of")
    assert not outcome.retriable
    assert platform.torn_down
    assert opened(tmp_path).duration_s == 120
    assert not [finding for finding in verify(tmp_path / "data") if finding.severity == "error"]


def test_each_delay_of_the_host_makes_a_void_stretch(tmp_path: Path) -> None:
    clock = VirtualClock()

    def slow_down(platform: FakePlatform) -> None:
        start_ns = clock.time_ns()
        delays = [(start_ns + 100 * SECOND_NS, 4000.0), (start_ns + 160 * SECOND_NS, 2000.0)]

        def measure_host_load(*, reset: bool = False) -> HostLoad:
            due = [delay_ms for at_ns, delay_ms in delays if at_ns <= clock.time_ns()]
            if reset:
                del delays[: len(due)]
            return HostLoad(worst_delay_ms=max(due, default=1.0))

        platform.measure_host_load = measure_host_load  # type: ignore[method-assign]

    record(tmp_path, clock=clock, platform=slow_down)
    voids = opened(tmp_path).voids()
    assert voids["reason"].tolist() == ["host", "host"]
    assert voids["detail"].tolist() == ["the host was 4000 ms late", "the host was 2000 ms late"]
    assert [5 <= length.length_s <= 12 for length in opened(tmp_path).truth.void_stretches] == [True, True]


def test_a_fault_that_cannot_be_injected_makes_only_its_incident_void(tmp_path: Path) -> None:
    def remove(platform: FakePlatform) -> None:
        patch = platform.patch

        def refuse(kind: str, name: str, change: Any) -> Any:
            if name == "geo" and "ports" in str(change):
                raise health.PlatformError("the service is gone")
            return patch(kind, name, change)

        platform.patch = refuse  # type: ignore[method-assign]

    outcome, _ = record(tmp_path, platform=remove)
    assert outcome.failure == ""
    recording = opened(tmp_path)
    assert recording.duration_s == 300
    assert recording.voids()["detail"].tolist()[0] == "the service is gone"
    assert recording.incidents()["is_scored"].tolist() == [False, True]


def test_health_is_recorded_without_incidents(tmp_path: Path) -> None:
    outcome, _ = record(tmp_path, replace(RECORDED, recording=replace(RECORDING, duration_s=90.0, incidents=())))
    assert outcome.failure == ""
    assert [chunk.number for chunk in read_chunks(tmp_path / "data" / "recordings" / "abc")] == [1, 2]
    assert len(opened(tmp_path).incidents()) == 0


def spans(rows: list[dict[str, Any]]) -> pa.Table:
    """Return spans with `trace`, `at_s`, `length_s` and `status`."""
    times = [round(row["at_s"] * SECOND_NS) for row in rows]
    return pa.table(
        {
            "trace_id": [f"{row['trace']:032x}" for row in rows],
            "time": pa.array(times, pa.timestamp("ns", "UTC")),
            "duration_ns": [round(row.get("length_s", 0.01) * SECOND_NS) for row in rows],
            "status": pa.array([row.get("status", "unset") for row in rows]).dictionary_encode(),
        }
    )


def test_errors_and_slow_traces_are_whole_and_others_a_share() -> None:
    rows = [{"trace": 16**7 * number, "at_s": 1 + number / 10} for number in range(16)]
    rows += [{"trace": 16**8 - 1, "at_s": 1}, {"trace": 16**8 - 1, "at_s": 2, "status": "error"}]
    rows += [{"trace": 16**8 - 2, "at_s": 1}, {"trace": 16**8 - 2, "at_s": 2, "length_s": 0.6}]
    sampled = sample_spans(spans(rows), Sampling(traces=0.25, slow_traces_s=0.5), 0, 10 * SECOND_NS)
    traces = [int(trace, 16) for trace in sampled["trace_id"].to_pylist()]
    assert traces == [16**7 * number for number in range(4)] + [16**8 - 1] * 2 + [16**8 - 2] * 2


def test_a_trace_with_an_error_after_the_chunk_is_kept_in_it() -> None:
    rows = [{"trace": 16**8 - 1, "at_s": 9.5}, {"trace": 16**8 - 1, "at_s": 10.5, "status": "error"}]
    sampled = sample_spans(spans(rows), Sampling(traces=0.0, slow_traces_s=5.0), 0, 10 * SECOND_NS)
    assert sampled["time"].cast(pa.int64()).to_pylist() == [9_500_000_000]


@pytest.mark.parametrize(("levels", "messages"), [((), ["a", "b", "c"]), (("error",), ["b", "c"])])
def test_log_lines_of_other_levels_are_left_out(levels: tuple[str, ...], messages: list[str]) -> None:
    logs = pa.table({"level": pa.array(["info", "error", None]).dictionary_encode(), "message": ["a", "b", "c"]})
    assert sample_logs(logs, Sampling(log_levels=levels))["message"].to_pylist() == messages


def test_requests_are_counted_per_step() -> None:
    counts = request_counts(np.array([0, 5, 9, 10, 24]), 0, 25, 10)
    assert counts == [(0, 10, 3), (10, 20, 1), (20, 25, 1)]
