"""Recordings are written in chunks and read in any window."""

from __future__ import annotations

import errno
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from faultset.core.errors import DataError, DiskFullError, UsageError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.incidents import RecordingSummary, make_recording_splits
from faultset.datasets.format.recordings import (
    CHUNK_FILE,
    Chunk,
    RecordingWriter,
    Stretch,
    complete_recordings,
    read_chunks,
)
from faultset.datasets.format.versions import compare_versions, create_version, read_version
from faultset.datasets.recordings.cuts import CutLengths, cut_view, plan_fault_cuts
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.view import RecordingView
from tests.datasets.recorded_samples import CHUNK_S, SECOND, at, context, incident, samples, write_chunks


def test_another_writer_continues_with_a_new_segment(tmp_path: Path) -> None:
    write_chunks(RecordingWriter(tmp_path, context()), (0, 1), {})
    write_chunks(RecordingWriter(tmp_path, context()), (2, 4), {})
    chunks = read_chunks(tmp_path / "recordings" / "r1")
    assert [(chunk.number, chunk.segment) for chunk in chunks] == [(1, 1), (2, 1), (3, 2), (4, 3)]


def test_a_killed_writer_loses_only_the_open_chunk(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, context())
    write_chunks(writer, (0,), {})
    left = tmp_path / "recordings" / "r1" / "chunks" / "0002.incomplete"
    left.mkdir()
    (left / CHUNK_FILE).write_text("{")
    assert [chunk.number for chunk in read_chunks(left.parents[1])] == [1]
    write_chunks(RecordingWriter(tmp_path, context()), (1,), {})
    assert not left.exists()
    assert [chunk.number for chunk in read_chunks(left.parents[1])] == [1, 2]


def test_a_full_disk_leaves_the_chunks_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = RecordingWriter(tmp_path, context())
    write_chunks(writer, (0,), {})
    with monkeypatch.context() as patch:
        patch.setattr("faultset.datasets.format.episodes.write_parquet", refuse)
        with pytest.raises(DiskFullError, match="no space left"):
            write_chunks(writer, (1,), {})
    assert [path.name for path in (writer.folder / "chunks").iterdir()] == ["0001"]
    write_chunks(writer, (1,), {})
    assert [chunk.segment for chunk in read_chunks(writer.folder)] == [1, 1]


@pytest.mark.parametrize(
    ("first_s", "last_s", "message"),
    [(300, 900, "starts 300 s before chunk 1 ends"), (600, 600, "but lasts 0 s"), (700, 1200, "are outside")],
)
def test_chunks_that_do_not_follow_are_refused(tmp_path: Path, first_s: int, last_s: int, message: str) -> None:
    writer = RecordingWriter(tmp_path, context())
    write_chunks(writer, (0,), {})
    with pytest.raises(DataError, match=message):
        writer.append(at(first_s), at(last_s), {"metrics": [samples(600, 1200)]})
    assert complete_recordings(tmp_path) == ["r1"]
    assert writer.end_ns == at(CHUNK_S)


def test_other_settings_do_not_continue_a_recording(tmp_path: Path) -> None:
    RecordingWriter(tmp_path, context())
    with pytest.raises(DataError, match="with a different context"):
        RecordingWriter(tmp_path, context(app="other"))


def test_a_recording_without_a_chunk_makes_no_version(tmp_path: Path) -> None:
    RecordingWriter(tmp_path, context())
    with pytest.raises(DataError, match="no complete episode for a version, and no recording"):
        create_version(tmp_path, provenance={})


def test_a_version_keeps_its_chunks_when_the_recording_goes_on(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, context())
    write_chunks(writer, (0, 1), {})
    first = create_version(tmp_path, provenance={})
    write_chunks(writer, (2,), {2: {"incidents": [incident("x", 1300, 60)]}})
    second = create_version(tmp_path, provenance={})
    hours = [open_dataset(tmp_path, version).recording("r1").duration_s / 600 for version in (first, second)]
    assert hours == [2, 3]
    (change,) = compare_versions(tmp_path, first, second)
    assert (change["change"], change["episode"], len(change["files"])) == ("changed", "r1", 13)


def test_splits_by_time_do_not_divide_an_incident(tmp_path: Path) -> None:
    incidents = {1: {"incidents": [incident("x", 620, 300)]}, 2: {"incidents": [incident("y", 1750, None)]}}
    write_chunks(RecordingWriter(tmp_path, context()), (0, 1, 2), incidents)
    create_version(tmp_path, provenance={})
    split = open_dataset(tmp_path).recording_splits["by-time"]
    assert [(stretch.start_ns, stretch.end_ns) for stretch in split.train] == [(at(0), at(1080))]
    assert [(stretch.start_ns, stretch.end_ns) for stretch in split.validation] == [(at(1080), at(1440))]
    assert [(stretch.start_ns, stretch.end_ns) for stretch in split.test] == [(at(1440), at(1800))]


def sides_of(counts: Sequence[int]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the applications on each side by recording and by application, for so many recordings of each."""
    summaries = {}
    for app, count in enumerate(counts):
        for number in range(count):
            name = f"r{app}{number}"
            chunk = Chunk(recording=name, number=1, segment=1, start_ns=at(0), end_ns=at(CHUNK_S))
            summaries[name] = RecordingSummary(
                context=context(name, app=f"app{app}"), chunks=(chunk,), incidents=(), files={}, stamps={}
            )
    splits = make_recording_splits(summaries)
    assert make_recording_splits(dict(reversed(summaries.items()))) == splits, "the order is of no importance"
    by_recording, by_app = (
        {side: sorted(s.recording[1] for s in getattr(splits[name], side)) for side in ("train", "validation", "test")}
        for name in ("by-recording", "by-app")
    )
    return by_recording, by_app


@pytest.mark.parametrize(
    ("counts", "sizes", "every_app"),
    [
        ((1, 1), (1, 0, 1), ()),
        ((1, 1, 1, 1), (2, 1, 1), ()),
        ((2, 2, 2, 2), (4, 1, 3), ("train",)),
        ((3, 3, 3, 3), (4, 4, 4), ("train", "validation", "test")),
        ((4, 4, 4, 4), (8, 4, 4), ("train", "validation", "test")),
        ((3, 3, 2, 1), (4, 2, 3), ()),
        ((8, 2), (5, 2, 3), ("train", "test")),
    ],
)
def test_every_application_is_on_as_many_sides_as_it_has_recordings(
    counts: tuple[int, ...], sizes: tuple[int, ...], every_app: tuple[str, ...]
) -> None:
    by_recording, by_app = sides_of(counts)
    assert tuple(map(len, by_recording.values())) == sizes
    for side in every_app:
        assert {*by_recording[side]} == {str(app) for app in range(len(counts))}
    for app, count in enumerate(counts):
        assert sum(str(app) in apps for apps in by_recording.values()) == min(count, 3)
        assert sum(str(app) in apps for apps in by_app.values()) == 1
    assert sum(bool(apps) for apps in by_app.values()) == min(len(counts), 3)


def test_a_split_with_overlapping_stretches_is_refused(recorded_root: Path, tmp_path: Path) -> None:
    manifest = json.loads((recorded_root / "versions" / "1.0.0.json").read_text())
    split = manifest["recording_splits"]["by-time"]
    split["test"] = split["train"]
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "1.0.0.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="two stretches of r1 that overlap"):
        read_version(tmp_path)


def test_the_card_states_hours_incidents_and_sampling(recorded_root: Path) -> None:
    card = (recorded_root / "README.md").read_text()
    assert "1 recording,\nversion 1.0.0" in card
    assert "| r1 | bare | 0.83 | 5 | 2 | 3 | 5 | 10% of the traces and all with an error or of at least 0.5 s" in card
    assert "| bare | memory-leak | manifest | 3 |" in card


def seconds(stretches: tuple[Stretch, ...]) -> list[tuple[float, float]]:
    return [((s.start_ns - at(0)) / SECOND, (s.end_ns - at(0)) / SECOND) for s in stretches]


def test_segments_and_duration_leave_the_gap_out(recording: Recording[Dataset]) -> None:
    assert seconds(recording.view.segments) == [(0, 1800), (2400, 3600)]
    assert recording.duration_s == 3000


def test_the_last_row_of_an_incident_is_valid(recording: Recording[Dataset]) -> None:
    frame = recording.incidents()
    assert list(frame.index) == ["a", "b", "c"]
    assert list(frame["verdict"]) == ["manifest"] * 3
    assert list(frame["duration_s"]) == [310, 130, 210]
    assert list(frame["is_scored"]) == [True, True, False]
    assert frame["start"]["a"] == pd.Timestamp(at(500), tz="UTC")


def test_healthy_stretches_are_between_incidents_and_voids(recording: Recording[Dataset]) -> None:
    assert seconds(recording.truth.healthy_stretches) == [
        (0, 500),
        (810, 1000),
        (1130, 1800),
        (2400, 2500),
        (2710, 3600),
    ]


def test_decoys_load_voids_and_evidence_are_frames(recording: Recording[Dataset]) -> None:
    assert list(recording.decoys()["service"]) == ["front"]
    assert recording.load()["planned_rps"].tolist() == [5.0]
    assert recording.voids()["reason"].tolist() == ["host"]
    assert recording.evidence()["incident"].tolist() == ["b"]


@pytest.mark.parametrize("step_s", [5, 7, 60])
def test_rates_continue_over_the_ends_of_chunks(recording: Recording[Dataset], step_s: float) -> None:
    frame = recording.wide(at(100), at(1700), step_s)
    rates = frame["geo", "requests_total"]
    assert len(frame) == -(-1600 // step_s)
    assert np.allclose(rates.dropna(), 2.0)
    # the last step of 7 s is cut short
    assert rates.isna().sum() == (step_s == 7)


def test_a_wide_frame_leaves_the_gap_between_segments_out(recording: Recording[Dataset]) -> None:
    frame = recording.wide(step_s=10)
    assert len(frame) == 300
    # the first step of a segment has no sample before it
    assert np.isnan(frame["geo", "requests_total"].to_numpy()).sum() <= 2
    assert not recording.wide(at(1900), at(2500), 10).index.min() < pd.Timestamp(at(2400), tz="UTC")


def test_a_window_reads_only_its_rows(recording: Recording[Dataset]) -> None:
    table = recording.view.table("metrics", "2025-10-09T08:53:20", at(20), ["time", "value"], [("kind", "==", "gauge")])
    assert table["value"].to_pylist() == [0.0, 5.0, 10.0, 15.0]
    assert recording.table("logs").num_rows == 0
    with pytest.raises(UsageError, match="must overlap recording r1"):
        recording.table("metrics", at(4000))
    with pytest.raises(UsageError, match="a time must be UTC nanoseconds or text such as"):
        recording.table("metrics", "tomorrow")


def test_the_stream_is_in_time_order_and_shows_a_span_when_it_has_ended(recording: Recording[Dataset]) -> None:
    ends = [at(moment) for moment in (6, 602, 606, 1202, 1206, 2406, 3002, 3006)]
    seen: list[int] = []
    starts = []
    for piece in recording.stream(40, ("metrics", "spans")):
        starts.append(piece.start_ns)
        times = piece.tables["metrics"]["time"].cast("int64").to_numpy()
        assert ((times >= piece.start_ns) & (times < piece.end_ns)).all()
        rows = piece.tables["spans"].to_pandas()
        known = rows["time"].astype("int64") + rows["duration_ns"]
        assert ((known >= piece.start_ns) & (known < piece.end_ns)).all()
        seen += known.tolist()
    assert starts == [at(second) for second in (*range(0, 1800, 40), *range(2400, 3600, 40))]
    assert seen == ends


def test_a_view_pickles_small_and_reads_only_the_chunks_of_its_version(recording: Recording[Dataset]) -> None:
    copy = pickle.loads(pickle.dumps(recording.view))
    assert isinstance(copy, RecordingView)
    assert copy.window == recording.view.window
    assert len(pickle.dumps(recording.view)) < 500
    assert RecordingView(recording.path, [1, 2]).window == (at(0), at(1200))


def test_a_recording_is_cut_into_ordinary_episodes(recording: Recording[Dataset], tmp_path: Path) -> None:
    dataset = recording.episodes(before_s=100, after_s=80, out=tmp_path / "cuts")
    labels = dataset.labels()
    faults = labels[labels["fault"].notna()].sort_values("start")
    # the third overlaps a void stretch
    assert faults["onset_ns"].tolist() == [at(500), at(1000)]
    assert (labels["duration_s"] == 180).all()
    assert (labels["reference_s"] == 80).all()
    assert faults["onset_s"].between(80, 120).all()
    assert set(labels["no_fault"].dropna()) == {"plain"}
    assert len(labels) == 2 + 2 + 1 + 3 + 0 + 4
    assert not [finding for finding in verify(tmp_path / "cuts") if finding.severity == "error"]


def test_cuts_do_not_end_after_the_fault_was_undone(recording: Recording[Dataset]) -> None:
    cuts = list(plan_fault_cuts(recording.truth, CutLengths(before_s=80, after_s=130)))
    ends = {cut.incident.incident: cut.end_ns for cut in cuts if cut.incident}
    assert ends["b"] <= at(1120)
    # no view of this length fits between the end of the first incident and the undo of the second
    longer = plan_fault_cuts(recording.truth, CutLengths(before_s=180, after_s=140))
    assert "b" not in {cut.incident.incident for cut in longer if cut.incident}


def test_cuts_are_the_same_again_and_are_kept(recording: Recording[Dataset], tmp_path: Path) -> None:
    first = recording.episodes(before_s=100, after_s=80, healthy=1)
    assert len(first) == 3
    assert recording.episodes(before_s=100, after_s=80, healthy=1).root == first.root
    assert (first.root.parent / ".gitignore").read_text() == "*\n"
    assert recording.episodes(before_s=100, after_s=80, healthy=1, out=tmp_path / "x").episodes == first.episodes
    with pytest.raises(DataError, match="no incident and no healthy stretch"):
        recording.episodes(before_s=3000, after_s=600)
    with pytest.raises(UsageError, match="before_s must be at least 1 s, got 0"):
        recording.episodes(before_s=0, after_s=600)


def test_any_window_becomes_a_view_without_what_was_known_later(recording: Recording[Dataset], tmp_path: Path) -> None:
    view = cut_view(recording.view, tmp_path, start_ns=at(590), end_ns=at(605.5), reference_end_ns=at(600))
    assert view.window == (at(590), at(605.5))
    # the span that starts at 605 s ends later
    assert view.spans()["duration_ns"].tolist() == [3 * SECOND]
    assert view.wide(1)["geo", "level"].dropna().tolist() == [590, 595, 600]
    with pytest.raises(DataError, match="must be in one segment"):
        cut_view(recording.view, tmp_path, start_ns=at(1700), end_ns=at(2500), reference_end_ns=at(1750))
