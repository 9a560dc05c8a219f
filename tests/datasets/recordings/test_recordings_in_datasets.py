"""Commands and functions on datasets that have recordings."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from faultset.core.console import root as faultset
from faultset.core.errors import DataError
from faultset.datasets.checks.verification import verify
from faultset.datasets.compaction import compact_dataset
from faultset.datasets.dataset import open_dataset
from faultset.datasets.derivation import (
    EpisodeFilter,
    filter_dataset,
    merge_datasets,
    split_dataset,
    write_dataset_card,
)
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import Sampling
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.version_files import hashes_below
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings import validation
from faultset.datasets.remote.writing import publish_dataset
from tests.datasets.recorded_samples import CHUNK_S, at, context, incident, samples, spans, write_chunks


def run(*arguments: object) -> Result:
    return CliRunner().invoke(faultset, ["dataset", *map(str, arguments)])


@pytest.fixture
def recorded_copy(recorded_root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded_root, tmp_path / "copy"))


@pytest.fixture
def mixed_root(tmp_path: Path) -> Path:
    """A dataset of two episodes and two recordings."""
    write_example_dataset(tmp_path / "mixed", episodes=2, baseline_s=20, fault_s=20)
    write_chunks(
        RecordingWriter(tmp_path / "mixed", context("r1")), (0, 1), {0: {"incidents": [incident("a", 100, 60)]}}
    )
    write_chunks(RecordingWriter(tmp_path / "mixed", context("r2", app="other")), (0,), {})
    create_version(tmp_path / "mixed", provenance={"synthetic": True})
    return tmp_path / "mixed"


def errors(root: Path) -> list[str]:
    return [str(finding) for finding in verify(root) if finding.severity == "error"]


def test_a_sound_recording_verifies(recorded_root: Path) -> None:
    assert errors(recorded_root) == []


CHUNK = "recordings/r1/chunks/0002"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / CHUNK / "truth/incidents.parquet").unlink(), "incidents.parquet is missing; restore it"),
        (lambda root: (root / CHUNK / "chunk.json").write_text("{}"), "checksum: recordings/r1/chunks/0002/chunk.json"),
        (lambda root: (root / CHUNK / "telemetry/extra.parquet").write_text(""), "is not part of the version"),
        (lambda root: shutil.rmtree(root / CHUNK), "is missing; restore it"),
    ],
)
def test_damage_is_reported(recorded_copy: Path, damage: Any, message: str) -> None:
    damage(recorded_copy)
    assert any(message in error for error in errors(recorded_copy))


def test_a_chunk_that_a_later_recording_added_is_no_damage(recorded_copy: Path) -> None:
    write_chunks(RecordingWriter(recorded_copy, context()), (6,), {})
    assert errors(recorded_copy) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": ["nowhere"]}, '"nowhere" is a target or root cause but not among the services'),
        ({"verdict": "none"}, 'verdict "none" must be manifest, latent, silent or unknown'),
        (
            {"recover_start": 1},
            "inject_start, inject_done, recover_start, recover_done, healthy_again are not in order",
        ),
    ],
)
def test_wrong_incidents_are_reported(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    truth = {0: {"incidents": [incident("a", 100, 60, **changes)]}}
    write_chunks(RecordingWriter(tmp_path, context()), (0,), truth)
    create_version(tmp_path, provenance={})
    assert any(message in error for error in errors(tmp_path))
    with pytest.raises(DataError, match="restore the file"):
        open_dataset(tmp_path).check_files()


def test_rows_outside_a_chunk_are_reported(recorded_copy: Path) -> None:
    path = recorded_copy / CHUNK / "telemetry/metrics.parquet"
    table = pq.read_table(path)
    later = pa.array(table["time"].cast(pa.int64()).to_numpy() + 10**12).cast(table.schema.field("time").type)
    pq.write_table(table.set_column(table.schema.get_field_index("time"), table.schema.field("time"), later), path)
    create_version(recorded_copy, provenance={})
    assert any("240 of 240 rows are outside the chunk" in error for error in errors(recorded_copy))


@pytest.mark.parametrize(("visible", "leaks"), [([], 1), (["port 8067"], 0)])
def test_a_text_that_an_incident_shows_in_a_later_chunk_is_no_leak(
    tmp_path: Path, visible: list[str], leaks: int
) -> None:
    writer = RecordingWriter(tmp_path, context())
    intent = {"seq": 1, "state": "intent", "scope": "a", "args": {"port": 8067}, "inverse": [], "visible": visible}
    truth = {"incidents": [incident("a", 590, 60, parameters={"port": 8067})]}
    lines = pa.table({"time": pa.array([at(610)], pa.timestamp("ns", "UTC")), "pod": ["geo-1"], "container": ["geo"]})
    for name, text in {"service": "geo", "level": "error", "message": "connect to port 8067: refused"}.items():
        lines = lines.append_column(name, pa.array([text]))
    for name in ("trace_id", "span_id"):
        lines = lines.append_column(name, pa.array([None], pa.string()))
    writer.append(at(0), at(600), {}, truth=truth, journal=json.dumps(intent) + "\n")
    writer.append(at(600), at(1200), {"logs": [lines]})
    create_version(tmp_path, provenance={})
    findings = [finding for finding in verify(tmp_path) if finding.check == "leak"]
    assert len(findings) == leaks


def test_files_that_passed_are_not_read_again(recorded_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_dataset(recorded_copy).check_files()

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(validation, "recording_problems", refuse)
    open_dataset(recorded_copy).check_files()


def test_filters_and_splits_keep_recordings(mixed_root: Path) -> None:
    everything = split_dataset(mixed_root, seed=5)
    assert (len(everything), len(everything.recordings())) == (2, 2)
    other = filter_dataset(mixed_root, EpisodeFilter(apps=["other"]))
    assert (len(other), [recording.id for recording in other.recordings()]) == (0, ["r2"])
    leaking = filter_dataset(mixed_root, EpisodeFilter(faults=["memory-leak"]), version=everything.version)
    assert [recording.id for recording in leaking.recordings()] == ["r1"]
    write_dataset_card(mixed_root, version=everything.version)
    assert "2 episodes and 2 recordings" in (mixed_root / "README.md").read_text()


def test_a_merge_copies_recordings_once(mixed_root: Path, recorded_root: Path, tmp_path: Path) -> None:
    merged = merge_datasets([mixed_root, mixed_root], tmp_path / "merged")
    assert hashes_below(merged.root / "recordings") == hashes_below(mixed_root / "recordings")
    assert errors(merged.root) == []
    with pytest.raises(DataError, match="have different data below recordings/r1"):
        merge_datasets([mixed_root, recorded_root], tmp_path / "other")


def test_a_published_recording_is_read_from_its_url(mixed_root: Path) -> None:
    url = f"memory://bucket-{uuid.uuid4().hex[:8]}/data"
    first = publish_dataset(mixed_root, url)
    assert first.copied == first.files == len(open_dataset(mixed_root).version_file.paths())
    write_chunks(RecordingWriter(mixed_root, context("r2", app="other")), (1,), {})
    create_version(mixed_root, provenance={"synthetic": True})
    assert publish_dataset(mixed_root, url).copied == 13
    shown = run("show", url)
    assert shown.exit_code == 0
    assert "r2         other" in shown.stdout
    assert run("verify", url).exit_code == 0


def test_a_compacted_recording_keeps_traces_over_the_ends_of_chunks(recorded_root: Path, tmp_path: Path) -> None:
    small = compact_dataset(recorded_root, tmp_path / "small")
    (before,), (after,) = open_dataset(recorded_root).recordings(), small.recordings()
    assert errors(small.root) == []
    ids = [recording.table("spans").to_pandas()["trace_id"] for recording in (before, after)]
    assert set(ids[1].str[0]) == {"0"}
    # the sample uses the same two ids in every chunk
    assert [column.nunique() for column in ids] == [2, 2]
    assert before.incidents().equals(after.incidents())
    assert before.wide(step_s=60).equals(after.wide(step_s=60))
    assert [segment.length_s for segment in after.view.segments] == [1800, 1200]


def test_compaction_marks_log_lines_whose_traces_were_not_sampled(tmp_path: Path) -> None:
    root = tmp_path / "data"
    recorded, lost, unsampled = f"{0:032x}", f"{16**7:032x}", f"{2 * 16**7:032x}"
    trace_ids = [recorded, lost, unsampled, None]
    lines = {
        "time": pa.array([at(6)] * 4, pa.timestamp("ns", "UTC")),
        **{name: ["geo"] * 4 for name in ("service", "pod", "container")},
        "level": ["info"] * 4,
        "message": [f"trace_id={trace_id}" for trace_id in trace_ids],
        "trace_id": pa.array(trace_ids, pa.string()),
        "span_id": pa.array([None] * 4, pa.string()),
    }
    tables = {"metrics": [samples(0, CHUNK_S)], "spans": [spans([(5, 1)])], "logs": [pa.table(lines)]}
    RecordingWriter(root, context(sampling=Sampling(traces=0.1))).append(at(0), at(CHUNK_S), tables)
    create_version(root, provenance={})
    once = compact_dataset(root, tmp_path / "once")
    twice = compact_dataset(once.root, tmp_path / "twice")
    for dataset in (once, twice):
        (recording,) = dataset.recordings()
        logs = recording.table("logs").to_pandas()
        assert logs["trace_id"].dropna().str[0].tolist() == ["0", "0", "f"]
        assert logs["message"].str.removeprefix("trace_id=").str[0].tolist() == ["0", "0", "f", "N"]
        assert recording.table("spans")["trace_id"].to_pylist() == [logs["trace_id"][0]]


def test_show_and_episodes_list_recordings_and_incidents(recorded_root: Path) -> None:
    lines = [line.split() for line in run("show", recorded_root).stdout.splitlines()]
    assert ["r1", "bare", "0.83", "5", "2", "3", "0.8"] in lines
    assert ["by-time", "time", "0.50", "h", "0.17", "h", "0.17", "h"] in lines
    records = json.loads(run("episodes", recorded_root, "--json").stdout)
    assert [(record["episode"], record["onset_s"], record["duration_s"]) for record in records] == [
        ("r1/a", 500, 310),
        ("r1/b", 1000, 130),
        ("r1/c", 2500, 210),
    ]
    assert json.loads(run("episodes", recorded_root, "--faults", "none", "--json").stdout) == []
    assert json.loads(run("versions", recorded_root, "--json").stdout)[0]["recordings"] == 1
