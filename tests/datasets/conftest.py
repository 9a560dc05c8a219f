from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from faultset.core.files import canonical_json
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.schemas import TABLES, AddedTable
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.recording import Recording
from tests.datasets.recorded_samples import TRUTH, context, write_chunks

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
START_NS = 1_760_000_000_000_000_000
SECOND = 1_000_000_000

WriteEpisode = Callable[..., Path]


def _recorded_again(root: Path, version: str = "1.0.0") -> None:
    """Make a version file say of every file what it is now, as somebody would who wants damage to go unnoticed."""
    file = root / "versions" / f"{version}.json"
    manifest = json.loads(file.read_text())
    for episode, records in manifest["episodes"].items():
        for name, record in records.items():
            content = (root / "episodes" / episode / name).read_bytes()
            record["bytes"], record["sha256"] = len(content), hashlib.sha256(content).hexdigest()
            with contextlib.suppress(Exception):
                record["rows"] = pq.read_metadata(io.BytesIO(content)).num_rows if name.endswith("parquet") else None
    file.write_text(json.dumps(manifest))


@pytest.fixture
def recorded_again() -> Callable[..., None]:
    """Make a version file say of every file what it is now."""
    return _recorded_again


@pytest.fixture(scope="session")
def example_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic dataset that no test changes."""
    root = tmp_path_factory.mktemp("example")
    write_example_dataset(root, episodes=4, baseline_s=20, fault_s=20)
    return root


@pytest.fixture
def example_copy(example_root: Path, tmp_path: Path) -> Path:
    """A synthetic dataset of the test's own."""
    return Path(shutil.copytree(example_root, tmp_path / "copy"))


@pytest.fixture(scope="session")
def few_episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three episodes of the sample, two of them with a fault, that no test changes."""
    root = tmp_path_factory.mktemp("few") / "sample"
    for episode in ("0d3c530732fb", "31bf76ab9496", "a5edb68659bc"):
        shutil.copytree(SAMPLE / "episodes" / episode, root / "episodes" / episode)
    create_version(root, provenance={})
    return root


@pytest.fixture
def write_episode(tmp_path: Path) -> WriteEpisode:
    """Write a bare episode of 100 s below `tmp_path`; tables are given as lists of rows."""

    def write(
        episode: str = "e1",
        *,
        app: str = "bare",
        label: Mapping[str, Any] | None = None,
        journal: list[Mapping[str, Any]] | None = None,
        services: tuple[str, ...] = ("front", "geo"),
        start_ns: int = START_NS,
        added_tables: Sequence[AddedTable] = (),
        evidence: Sequence[Mapping[str, Any]] = (),
        **tables: list[Mapping[str, Any]],
    ) -> Path:
        context = EpisodeContext(
            episode=episode,
            app=app,
            platform="test",
            view_start_ns=start_ns,
            view_end_ns=start_ns + 100 * SECOND,
            reference_end_ns=start_ns + 40 * SECOND,
            source_intervals_s={"metrics": 1.0},
            services=services,
            calls=(("front", "geo"),),
            workload_entry="front",
            added_tables=tuple(added_tables),
        )
        path = tmp_path / "journal.jsonl"
        path.write_text("".join(canonical_json(record) + "\n" for record in journal or []))
        schemas = context.tables
        with EpisodeWriter(tmp_path, episode, added_tables=added_tables) as writer:
            for table, rows in tables.items():
                writer.write_table(table, [_rows_of(table, rows, schemas)] if rows else [])
            writer.write_context(context)
            writer.write_truth(_bare_label(start_ns) | dict(label or {}), evidence, path)
            return writer.commit()

    return write


def _rows_of(table: str, rows: list[Mapping[str, Any]], schemas: Mapping[str, Any] = TABLES) -> Any:
    """Make a table of rows in which absent fields are null."""
    import pyarrow as pa

    fields = [field for field in schemas[table] if field.name != "episode"]
    columns = {}
    for field in fields:
        kind = pa.string() if pa.types.is_dictionary(field.type) else field.type
        columns[field.name] = pa.array([row.get(field.name) for row in rows], type=kind)
    return pa.table(columns)


def _bare_label(start_ns: int = START_NS) -> dict[str, Any]:
    return {
        "fault": None,
        "no_fault_kind": "plain",
        "targets": [],
        "root_causes": [],
        "parameters": {},
        "view_start": start_ns,
        "view_end": start_ns + 100 * SECOND,
        "reference_end": start_ns + 40 * SECOND,
        "verdict": "none",
        "profile": "custom",
        "workload": {},
        "seed": 1,
        "host": {},
        "clock_offsets": {},
    }


def _fault_label(
    fault: str = "memory-leak", target: str = "geo", start_ns: int = START_NS, **more: Any
) -> dict[str, Any]:
    return {
        "fault": fault,
        "no_fault_kind": None,
        "targets": [target],
        "root_causes": [{"kind": "Deployment", "name": target, "service": target, "accepted": [target]}],
        "inject_start": start_ns + 50 * SECOND,
        "inject_done": start_ns + 51 * SECOND,
        "recover_start": start_ns + 101 * SECOND,
        "recover_done": start_ns + 102 * SECOND,
        "verdict": "manifest",
        **more,
    }


def _sample(metric: str, at_s: float, value: float, kind: str = "gauge", **more: Any) -> dict[str, Any]:
    """One row of the metrics table."""
    return {
        "time": START_NS + round(at_s * SECOND),
        "service": "geo",
        "pod": "geo-1",
        "container": "geo",
        "metric": metric,
        "labels": "{}",
        "kind": kind,
        "value": value,
        **more,
    }


def _log(at_s: float, message: str | None, **more: Any) -> dict[str, Any]:
    """One row of the logs table."""
    return {
        "time": START_NS + round(at_s * SECOND),
        "service": "geo",
        "pod": "geo-1",
        "container": "geo",
        "message": message,
    } | more


@pytest.fixture
def fault_label() -> Callable[..., dict[str, Any]]:
    """Make what a label of a fault episode has beside the bare one."""
    return _fault_label


@pytest.fixture
def sample() -> Callable[..., dict[str, Any]]:
    """Make one row of the metrics table: metric, seconds into the view, value."""
    return _sample


@pytest.fixture
def log() -> Callable[..., dict[str, Any]]:
    """Make one row of the logs table: seconds into the view, message."""
    return _log


@pytest.fixture
def rows_of() -> Callable[[str, list[Mapping[str, Any]]], Any]:
    """Make an Arrow table of one of our tables from rows in which absent fields are null."""
    return _rows_of


@pytest.fixture(scope="session")
def recorded_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with a recording of 50 minutes, in two segments with a gap of 10 minutes, that no test changes."""
    root = tmp_path_factory.mktemp("recorded")
    write_chunks(RecordingWriter(root, context()), (0, 1, 2), TRUTH)
    write_chunks(RecordingWriter(root, context()), (4, 5), TRUTH)
    create_version(root, provenance={"synthetic": True})
    return root


@pytest.fixture
def recording(recorded_root: Path) -> Recording[Dataset]:
    """Its recording."""
    (opened,) = open_dataset(recorded_root).recordings()
    return opened
