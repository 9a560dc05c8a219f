"""Run methods on the tested episodes of a scope, with a checkpoint from which an interrupted run resumes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import pyarrow as pa

from faultset.core.errors import DataError, UsageError
from faultset.core.files import replacing
from faultset.core.output import Progress, StepCounter
from faultset.evaluators.execution.plan import EvaluationPlan, identify_codes, make_plan
from faultset.evaluators.execution.scheduling import MethodEngine, describe_isolation, find_dashboard, run_plan
from faultset.evaluators.execution.settings import EvaluationScope
from faultset.evaluators.results.provenance import code_version, find_changed_codes
from faultset.evaluators.results.rows import (
    FILES,
    RECORDING_FILES,
    RESULTS_FILE,
    ROWS_VERSION,
    ResultRow,
    compress_rows,
    decompress_rows,
    writing,
)
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec


_HEAD = struct.Struct("<QI")
"""Header of every record in the file: length and CRC-32."""
_MAX_BYTES = 1 << 30

_CONDITION_NAMES = {
    "digest": "the dataset",
    "code": "faultset itself",
    "split": "the split",
    "train": "the training dataset",
    "rows": "the layout of results",
}


def checkpoint_path(folder: Path, results: str = RESULTS_FILE) -> Path:
    return folder / f"{Path(results).stem}.partial.arrows"


class Checkpoint:
    """A file to which every batch of rows is appended; removed when the evaluation is complete.

    Use it as a context manager. Only one evaluation can hold the checkpoint of a folder.

    Parameters
    ----------
    folder
        Folder of the results.
    conditions
        Values that must be unchanged for rows to be reused: version of the data, code, split.
    codes
        Baseline -> identity of its code. Rows are discarded if the code of their baseline, or of the detector that
        raised their alarm, has changed.
    results
        Name of the file that will hold the rows at the end.

    Attributes
    ----------
    changed
        Why `begin` discarded rows; empty if it discarded none.
    """

    def __init__(
        self,
        folder: Path,
        conditions: Mapping[str, Any],
        codes: Mapping[str, str] | None = None,
        *,
        results: str = RESULTS_FILE,
    ) -> None:
        self.folder = folder
        self.results = folder / results
        self.path = checkpoint_path(folder, results)
        self._conditions = {"rows": ROWS_VERSION, **conditions}
        self.codes = dict(codes or {})
        self._lock: int | None = None
        self._sink: IO[bytes] | None = None
        self.changed: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        # Do not follow links, because the folder may come from another person's dataset.
        try:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
            raise UsageError(f"{self._lock_path} {reason}; remove it or choose another --out") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(
                f"another evaluation writes to {self.path.parent}; wait for it or choose another --out"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            os.close(self._lock)

    @property
    def _lock_path(self) -> Path:
        return self.path.parent / f".{self.path.name}.lock"

    def begin(self, truths: Mapping[str, Truth], *, fresh: bool = False) -> list[ResultRow]:
        """Open the file and return the reusable rows of an interrupted evaluation."""
        rows = [] if fresh else self._read_rows(truths)
        with replacing(self.path, durable=False) as temporary:
            self._sink = temporary.open("wb")
            self._write(json.dumps({"conditions": self._conditions, "codes": self.codes}).encode())
            if rows:
                self.add(rows)
        return rows

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Append a batch; it survives a crash of this process."""
        if rows:
            self._write(compress_rows(rows))

    def remove(self) -> None:
        """Remove the file after the results have been written."""
        self._close()
        self.path.unlink(missing_ok=True)

    def _write(self, record: bytes) -> None:
        assert self._sink is not None
        self._sink.write(_HEAD.pack(len(record), zlib.crc32(record)) + record)
        self._sink.flush()

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _read_rows(self, truths: Mapping[str, Truth]) -> list[ResultRow]:
        records = _read_records(self.path)
        try:
            head = json.loads(next(records))
            conditions, codes = dict(head["conditions"]), dict(head["codes"])
        except (StopIteration, ValueError, KeyError, TypeError):
            return []
        if conditions != self._conditions:
            self.changed = tuple(
                _CONDITION_NAMES[name]
                for name in _CONDITION_NAMES
                if conditions.get(name) != self._conditions.get(name)
            )
            return []
        rows: dict[Any, ResultRow] = {}
        for record in records:
            with contextlib.suppress(pa.ArrowException, OSError, KeyError, ValueError, TypeError):
                rows |= {row.key: row for row in decompress_rows(record, truths)}
        outdated = {name for name, code in self.codes.items() if codes.get(name, code) != code}
        stale = {key for key, row in rows.items() if row.baseline in outdated or row.alarm_source in outdated}
        self.changed = tuple(f"the code of {name}" for name in sorted(outdated)) if stale else ()
        self.codes = codes | self.codes
        return [row for key, row in rows.items() if key not in stale]


def _read_records(path: Path) -> Iterator[bytes]:
    """Yield records up to the first incomplete or damaged one."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        return
    with file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            record = file.read(length) if length <= _MAX_BYTES else b""
            if len(record) != length or zlib.crc32(record) != checksum:
                return
            yield record


@dataclass(frozen=True, kw_only=True)
class EvaluationStart:
    """The plan of an evaluation, reported before the first method starts."""

    baselines: tuple[str, ...]
    """Names of the baselines."""
    episodes: int
    """Number of tested episodes."""
    faulty: int
    """Number of tested episodes with a fault."""
    answers: int
    """Number of answers to compute."""
    workers: int
    """Number of methods that run at a time."""
    expected_s: float
    """Estimated duration."""
    expected_bytes: int
    """Estimated size of the results."""
    reused: int
    """Number of answers taken from an interrupted evaluation."""
    recordings: int = 0
    """Number of tested recordings; the episodes are then views of them."""
    changed: tuple[str, ...] = ()
    """Conditions that differ from the last evaluation into the same folder."""
    dashboard: str | None
    """URL of dask's dashboard; None if bokeh is not installed."""


@dataclass(frozen=True, kw_only=True)
class MethodAnswers:
    """The answers of methods, and how they were run."""

    rows: list[ResultRow]
    specs: tuple[BaselineSpec, ...]
    """The methods that were run."""
    damage: Mapping[str, DataError]
    """Damaged episode -> the error."""
    isolation: str
    """How methods were isolated."""
    reused_fits: str
    """Number of fits from the cache, in total and by method; empty if there are none."""
    steps: StepCounter
    """Progress; one step remains for the leaderboards."""


def open_checkpoint(
    folder: Path,
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    file_codes: Mapping[str, str],
    *,
    results: str = RESULTS_FILE,
) -> Checkpoint:
    """Return the checkpoint of an evaluation into a folder.

    `file_codes`: prediction file -> identity of its content.
    `results`: see `Checkpoint`.
    """
    settings = scope.settings
    conditions = {"digest": scope.source.digest, "code": code_version(), "split": settings.split or ""}
    conditions |= {"train": settings.train} if settings.train else {}
    codes = identify_codes(specs, settings) | dict(file_codes)
    return Checkpoint(folder, conditions, codes, results=results)


def run_methods(
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    engine: MethodEngine,
    *,
    checkpoint: Checkpoint | None = None,
    started: Callable[[EvaluationStart], None] | None = None,
    progress: Progress | None = None,
) -> MethodAnswers:
    """Run methods on the tested episodes.

    `checkpoint`: stores answers as they arrive, so that an interrupted evaluation can resume.
    """
    reusable, changed, hidden = [], (), []
    if checkpoint is not None:
        with writing(checkpoint.folder):
            reusable = checkpoint.begin(scope.truths, fresh=scope.settings.fresh)
        changed = checkpoint.changed or find_changed_codes(checkpoint.results, checkpoint.codes)
        hidden = [checkpoint.path, *(checkpoint.folder / name for name in (*FILES, *RECORDING_FILES))]
    client = engine.connect(scope.source)
    plan = make_plan(scope, specs, engine.workers, reusable=reusable, hidden=hidden)
    if started is not None:
        started(_describe_start(plan, engine.workers, changed, find_dashboard(client)))

    def keep(rows: list[ResultRow]) -> None:
        if checkpoint is not None:
            with writing(checkpoint.folder):
                checkpoint.add(rows)

    def leave_out(episode: str, error: DataError) -> None:
        damage.setdefault(episode, error)

    damage: dict[str, DataError] = {}
    fits: list[tuple[str, bool]] = []
    steps = StepCounter(plan.steps + 1, progress)
    isolation = describe_isolation(client)
    rows = run_plan(plan, client, steps.add, keep, leave_out, fits.extend)
    return MethodAnswers(
        rows=rows, specs=plan.specs, damage=damage, isolation=isolation, reused_fits=_describe_fits(fits), steps=steps
    )


def _describe_start(
    plan: EvaluationPlan, workers: int, changed: tuple[str, ...], dashboard: str | None
) -> EvaluationStart:
    truths = plan.scope.source.truths
    return EvaluationStart(
        baselines=tuple(spec.name for spec in plan.specs),
        episodes=len(truths),
        faulty=sum(truth.faulty for truth in truths),
        answers=plan.answers,
        workers=workers,
        expected_s=plan.expected_s(workers),
        expected_bytes=plan.expected_bytes,
        reused=len(plan.reused),
        changed=changed,
        dashboard=dashboard,
    )


def _describe_fits(fits: Sequence[tuple[str, bool]]) -> str:
    """Count the fits from the cache, in total and by method; empty if there are none."""
    cached = Counter(name for name, is_cached in fits if is_cached)
    by_method = ", ".join(f"{name} {count}" for name, count in sorted(cached.items()))
    return f"{cached.total()} of {len(fits)} ({by_method})" if cached else ""
