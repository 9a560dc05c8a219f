from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from faultset.core.errors import DataError, DiskFullError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.incidents import RecordingSummary, make_recording_splits
from faultset.datasets.format.recordings import CHUNK_FILE, Chunk, RecordingWriter, complete_recordings, read_chunks
from faultset.datasets.format.versions import compare_versions, create_version, read_version
from tests.datasets.recorded_samples import CHUNK_S, at, context, incident, samples, write_chunks


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
