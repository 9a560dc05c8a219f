"""Result rows: one for every baseline, episode, protocol and seed, with the raw answer and the truth beside it.

Every reported number is computed from these rows, never while baselines run, so that a corrected metric costs a
second look at a file and not a second run. A row that failed is still a row.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from faultset.datasets.errors import DataError

Status = Literal["ok", "invalid", "error", "timeout", "memory", "exit", "output", "no_alarm"]
"""ok · invalid: an answer that is none · error: raised · timeout · memory · exit: its process ended · output:
wrote without end · no_alarm: a localizer that was not asked, because the named detector stayed silent."""

Protocol = Literal["detected", "oracle"]
"""detected: nothing about the onset is told; oracle: a localizer is told the true onset."""

ROWS_VERSION = 1
_NAME = pa.dictionary(pa.int32(), pa.string())

RESULTS = pa.schema(
    [
        pa.field("baseline", _NAME, nullable=False),
        pa.field("kind", _NAME, nullable=False),
        pa.field("needs", pa.list_(pa.string()), nullable=False),
        pa.field("settings", _NAME, nullable=False),
        pa.field("dataset", _NAME, nullable=False),
        pa.field("version", _NAME, nullable=False),
        pa.field("split", _NAME, nullable=False),
        pa.field("fold", pa.int32(), nullable=False),
        pa.field("episode", _NAME, nullable=False),
        pa.field("task", _NAME, nullable=False),
        pa.field("protocol", _NAME, nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("status", _NAME, nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("told_ns", pa.int64()),
        pa.field("told_by", _NAME),
        pa.field("alarm_ns", pa.int64()),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("ranking", pa.string(), nullable=False),
        pa.field("seconds", pa.float64()),
        pa.field("cpu_seconds", pa.float64()),
        pa.field("fit_seconds", pa.float64()),
        pa.field("peak_bytes", pa.int64()),
        pa.field("app", _NAME, nullable=False),
        pa.field("fault", _NAME),
        pa.field("no_fault_kind", _NAME),
        pa.field("targets", pa.list_(pa.string()), nullable=False),
        pa.field("causes", pa.list_(pa.list_(pa.string())), nullable=False),
        pa.field("candidates", pa.list_(pa.string()), nullable=False),
        pa.field("system_level", _NAME),
        pa.field("fault_type", _NAME),
        pa.field("verdict", _NAME, nullable=False),
        pa.field("profile", _NAME, nullable=False),
        pa.field("view_start_ns", pa.int64(), nullable=False),
        pa.field("view_end_ns", pa.int64(), nullable=False),
        pa.field("reference_end_ns", pa.int64(), nullable=False),
        pa.field("onset_ns", pa.int64()),
        pa.field("manifest_ns", pa.int64()),
        pa.field("code", _NAME, nullable=False),
        pa.field("libraries", _NAME, nullable=False),
    ],
    metadata={"faultset.rows": str(ROWS_VERSION)},
)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What scoring needs to know about an episode; never shown to a baseline."""

    episode: str
    app: str
    fault: str | None
    no_fault_kind: str | None
    targets: tuple[str, ...]
    causes: tuple[tuple[str, ...], ...]
    """For every root cause the candidates accepted for it."""
    candidates: tuple[str, ...]
    system_level: str | None
    fault_type: str | None
    verdict: str
    profile: str
    view_start_ns: int
    view_end_ns: int
    reference_end_ns: int
    onset_ns: int | None
    manifest_ns: int | None

    @property
    def faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @property
    def cluster(self) -> tuple[str, ...]:
        """Key under which repetitions of one problem count as one: application, fault, targets.

        A no-fault episode repeats nothing and is a cluster of its own.
        """
        if self.fault is None:
            return (self.app, "", self.episode)
        return (self.app, self.fault, *sorted(self.targets))


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One answer, or the lack of one."""

    baseline: str
    kind: str
    needs: tuple[str, ...]
    settings: str
    dataset: str
    version: str
    split: str
    fold: int
    task: str
    protocol: str
    seed: int
    status: Status
    reason: str = ""
    told_ns: int | None = None
    """Alarm or onset that a localizer was given."""
    told_by: str | None = None
    """Name of the detector the alarm came from, or "truth"."""
    alarm_ns: int | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    ranking: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    """Elapsed time; longer when other methods run beside."""
    cpu_seconds: float | None = None
    fit_seconds: float | None = None
    peak_bytes: int | None = None
    code: str = ""
    libraries: str = ""
    truth: Truth

    @property
    def episode(self) -> str:
        """Id of the episode."""
        return self.truth.episode

    @property
    def told_early(self) -> bool:
        """Whether the alarm a localizer was given stood before the true onset."""
        onset = self.truth.onset_ns
        return self.told_ns is not None and onset is not None and self.told_ns < onset

    @property
    def key(self) -> tuple[str, str, str, str, str, str, str, int]:
        """What a row answers; a later run with the same key need not ask again."""
        return (
            self.baseline,
            self.settings,
            self.dataset,
            self.version,
            self.episode,
            self.task,
            self.protocol,
            self.seed,
        )


def write_rows(rows: Iterable[ResultRow], path: Path) -> None:
    """Store rows as Parquet, sorted by key, so that the same run always gives the same order."""
    import pyarrow.parquet as pq

    records = [_record(row) for row in sorted(rows, key=lambda row: row.key)]
    table = pa.Table.from_pylist(records, schema=RESULTS)
    partial = path.with_name(path.name + ".incomplete")
    pq.write_table(table, partial, compression="zstd")
    partial.replace(path)


def read_rows(path: Path) -> list[ResultRow]:
    """Read what `write_rows` stored.

    Raises
    ------
    DataError
        When the file is missing, unreadable or was written in another layout.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as results ({error}); run evaluate again") from error
    found = (table.schema.metadata or {}).get(b"faultset.rows", b"none").decode()
    if found != str(ROWS_VERSION):
        raise DataError(
            f"{path} holds results in layout {found}, this release reads layout {ROWS_VERSION}; run evaluate again"
        )
    return [_row(record) for record in table.to_pylist()]


_TRUTH_FIELDS = tuple(f.name for f in dataclasses.fields(Truth))
_ROW_FIELDS = tuple(f.name for f in dataclasses.fields(ResultRow) if f.name != "truth")


def _record(row: ResultRow) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in _ROW_FIELDS}
    record |= {name: getattr(row.truth, name) for name in _TRUTH_FIELDS}
    record["answer"] = json.dumps(row.answer, separators=(",", ":"))
    record["ranking"] = json.dumps(row.ranking, separators=(",", ":"))
    return record


def _row(record: Mapping[str, Any]) -> ResultRow:
    truth = {name: record[name] for name in _TRUTH_FIELDS}
    truth |= {name: tuple(truth[name]) for name in ("targets", "candidates")}
    truth["causes"] = tuple(tuple(names) for names in truth["causes"])
    values = {name: record[name] for name in _ROW_FIELDS}
    values |= {"needs": tuple(values["needs"])}
    values |= {name: json.loads(values[name]) for name in ("answer", "ranking")}
    return ResultRow(truth=Truth(**truth), **values)


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Short stable name for what a baseline was run with."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def code_version() -> str:
    """Version of faultset, with the commit when it runs from a checkout; "dirty" when that was edited."""
    try:
        version = metadata.version("faultset")
    except metadata.PackageNotFoundError:
        version = "unknown"
    here = Path(__file__).resolve().parent
    described = _git(here, "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    return f"{version}+{described}" if described else version


def _git(folder: Path, *arguments: str) -> str:
    # without this check an installed copy would report the commit of whatever project surrounds it
    root = folder.parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def library_versions(names: Sequence[str] = ("numpy", "pandas", "scipy", "scikit-learn", "pyarrow")) -> str:
    """Versions of the libraries that answers can depend on, as canonical JSON."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return json.dumps(versions, sort_keys=True, separators=(",", ":"))
