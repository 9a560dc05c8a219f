"""The folder of imported runs: two tables, and a trajectory file for each run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

from faultset.agents.runs.record import RUNS, RUNS_VERSION, TRUTH, AgentRun, RunTruth
from faultset.core.errors import DataError
from faultset.core.files import parquet_path, replacing
from faultset.core.printable import printable
from faultset.core.reading.documents import validation_sentence
from faultset.core.reading.regular_files import regular_stat
from faultset.datasets.format.storage import translate_damage

RUNS_FILE, TRUTH_FILE, TRAJECTORIES = "runs.parquet", "truth.parquet", "trajectories"
_LARGEST_BYTES = 1 << 30
_MOST_ROWS = 5_000_000
T = TypeVar("T", bound=BaseModel)


def write_tables(folder: Path, runs: Iterable[AgentRun], truths: Iterable[RunTruth]) -> None:
    """Write both tables into a folder that nobody reads yet."""
    write_runs(folder, runs)
    _write(folder / TRUTH_FILE, TRUTH, truths)


def write_runs(folder: Path, runs: Iterable[AgentRun]) -> None:
    """Write the table of runs alone."""
    _write(folder / RUNS_FILE, RUNS, runs)


def _write(path: Path, schema: pa.Schema, rows: Iterable[BaseModel]) -> None:
    table = pa.Table.from_pylist([row.model_dump() for row in rows], schema=schema)
    with replacing(path, durable=False) as temporary:
        pq.write_table(table, parquet_path(temporary), compression="zstd")


def read_runs(folder: Path | str) -> list[AgentRun]:
    """Return the runs of a folder that an import has made, in its order.

    Raises
    ------
    DataError
        It is no such folder, or a file in it is damaged or of another layout.
    """
    return _read(Path(folder) / RUNS_FILE, RUNS, AgentRun)


def read_truths(folder: Path | str) -> dict[str, RunTruth]:
    """Return what the sources say of the runs of a folder, by run; see `read_runs`."""
    path = Path(folder)
    if (path / RUNS_FILE).is_file() and not (path / TRUTH_FILE).exists():
        raise DataError(
            f"{printable(path)} holds runs without their labels, as an evaluation writes them; score them with "
            f"evaluate DATASET --agents {printable(path)}"
        )
    return {truth.run: truth for truth in _read(path / TRUTH_FILE, TRUTH, RunTruth)}


def trajectory_file(folder: Path | str, run: AgentRun) -> Path:
    """Return where the trajectory of a run lies."""
    return Path(folder) / TRAJECTORIES / f"{run.run}.json"


def _read(path: Path, schema: pa.Schema, kind: type[T]) -> list[T]:
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {printable(path.parent)}; give one that faultset agents import has made")
    regular_stat(path, limit_bytes=_LARGEST_BYTES)
    with translate_damage(path):
        file = pq.ParquetFile(parquet_path(path))
        with file:
            if file.metadata.num_rows > _MOST_ROWS:
                raise DataError(f"{printable(path)} says it has {file.metadata.num_rows:,} rows; import the runs again")
            found = (file.schema_arrow.metadata or {}).get(b"faultset.agent_runs", b"none")
            if found != str(RUNS_VERSION).encode() or file.schema_arrow.names != schema.names:
                raise DataError(
                    f"{printable(path)} holds runs in layout {printable(found[:20].decode('utf-8', 'replace'))}, this "
                    f"release reads {RUNS_VERSION}; import the runs again"
                )
            rows = file.read().to_pylist()
    try:
        return [kind.model_validate(row) for row in rows]
    except ValidationError as problem:
        raise DataError(f"{printable(path)}: {validation_sentence(problem)}; import the runs again") from None


def record_beside(trajectory: Path) -> AgentRun | None:
    """Return the run of a trajectory file where it lies in an imported folder, and None elsewhere."""
    folder = trajectory.resolve().parent.parent
    if trajectory.resolve().parent.name != TRAJECTORIES or not (folder / RUNS_FILE).is_file():
        return None
    return next((run for run in read_runs(folder) if run.run == trajectory.stem), None)
