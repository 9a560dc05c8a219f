"""Import foreign data: write its cases as complete episodes or recordings, then a dataset version of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from faultset.core.documents import STRICT, read_document
from faultset.core.errors import DataError, UsageError
from faultset.core.files import replace_text, translate_write_errors
from faultset.core.locks import LOCK, lock_folder
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import count_text, size_text
from faultset.core.times import duration_text
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE
from faultset.datasets.format.recordings import RECORDINGS, complete_recordings
from faultset.datasets.format.schemas import EpisodeId, Name
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import (
    EpisodeSummary,
    complete_episodes,
    create_version,
    list_versions,
    read_version,
)
from faultset.datasets.imports.cases import episode_id, import_cases, worker_count
from faultset.datasets.imports.contract import Case, ImportFormat, choose_input, count_inputs, load_format, reading


@dataclass(frozen=True, kw_only=True)
class ImportCost:
    """Size and estimated cost of an import."""

    cases: int
    """Number of cases in the source."""
    waiting: int
    """Number of cases not yet imported."""
    faulty: int
    """Number of cases known to have a fault."""
    healthy: int
    """Number of cases known to have no fault."""
    workers: int
    """Number of cases imported concurrently."""
    seconds: float
    """Estimated time of the import."""
    disk_bytes: int
    """Estimated size of the new episodes and recordings."""

    def __str__(self) -> str:
        unknown = self.cases - self.faulty - self.healthy
        counts = f"{self.faulty} with a fault, {self.healthy} without" + (f", {unknown} unknown" if unknown else "")
        waiting = "" if self.waiting == self.cases else f", {self.waiting} not yet imported"
        return (
            f"{count_text(self.cases, 'case')} ({counts}){waiting}: about {duration_text(self.seconds)} and "
            f"{size_text(self.disk_bytes)}, {self.workers} at a time"
        )


IMPORTS = "imports"
_RECORD_BYTES = 64 << 20
_LONG_CASE_S = 5.0
"""A first case that takes longer is used for the estimate although it includes loading libraries."""


@dataclass(frozen=True, kw_only=True)
class ImportRecord:
    """Content of `imports/<id>.json`: source and case of each episode."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    format: Name
    path: str
    cases: Mapping[EpisodeId, str]
    """Episode -> key of its case."""
    inputs: Mapping[EpisodeId, str] = field(default_factory=dict[str, str])
    """Episode -> name of its input file, if the case has alternatives."""


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """Result of an import."""

    version: str
    """Version with the imported cases."""
    is_new: bool
    """Whether this run created the version."""
    cases: int
    """Number of cases."""
    recordings: int
    """Number of cases that are recordings; the others are episodes."""
    written: int
    """Episodes and recordings written by this run."""
    left_out: Mapping[str, str]
    """Skipped case -> reason why it could not be imported."""


@dataclass(frozen=True, kw_only=True)
class ImportSource:
    """The source to record for an import that reads a temporary folder."""

    path: str
    """Paths that the user gave."""
    details: Mapping[str, Any]
    """Additional fields of the provenance."""


def import_dataset(
    name: str,
    path: Path | str,
    out: Path | str,
    *,
    workers: int | None = None,
    skip_bad: bool = False,
    input_file: str | None = None,
    progress: Progress | None = None,
    announce: Callable[[ImportCost], None] | None = None,
    source: ImportSource | None = None,
) -> ImportResult:
    """Import foreign data into a dataset and create a version.

    Run an interrupted import again to finish it.

    Parameters
    ----------
    name
        Format, a name in the entry-point group `faultset.importers`.
    path
        Folder or file of the foreign data; it is only read.
    out
        Dataset folder: new, empty, or written by an earlier import.
    workers
        Processes; one per processor by default.
    skip_bad
        Leave out cases that cannot be imported. Otherwise they are an error, and no version is created.
    input_file
        Name of the file to read, for cases with alternative input files; by default the file that the programs of the
        source read.
    progress
        Called with the number of finished cases and the total; the last case is counted when the version has been
        created.
    announce
        Called with the estimated cost after the first cases, unless all cases were imported before.
    source
        Source to record instead of `path`.

    Raises
    ------
    UsageError
        The format is unknown, or `workers` is below 1.
    DataError
        `path` has no case, a case cannot be imported and `skip_bad` is false, or `out` holds other data.
    """
    path, out = Path(path), Path(out)
    importer = load_format(name)
    if not path.exists():
        raise DataError(f"{path} does not exist; give the folder of the {importer.title} data")
    if workers is not None and workers < 1:
        raise UsageError(f"`workers` must be at least 1, got {workers}")
    with reading(importer, str(path)):
        cases = importer.cases(path)
    _check_cases(importer, path, cases)
    cases = choose_input(cases, input_file, importer.title)
    with translate_write_errors(out):
        _refuse_other_data(out)
        with translate_disk_full(out):
            out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out, "import"):
        ids = {episode_id(name, case.key): case for case in cases}
        source = source or ImportSource(path=str(path.resolve()), details={})
        _record_source(importer, source, out, ids)
        existing = {*complete_episodes(out), *complete_recordings(out)}
        waiting = [case for episode, case in ids.items() if episode not in existing]
        steps = StepCounter(len(cases), progress)
        steps.add(len(cases) - max(1, len(waiting)))
        left_out, summaries = _write_cases(name, cases, waiting, out, workers, steps, announce)
        if left_out and (not skip_bad or len(left_out) == len(cases)):
            raise _build_failure(left_out, len(cases))
        version, is_new = _create_version(importer, source, out, cases, left_out, summaries)
        steps.add()
    return ImportResult(
        version=version,
        is_new=is_new,
        cases=len(cases),
        recordings=len(ids.keys() & {*complete_recordings(out)}),
        written=len(waiting) - len(left_out),
        left_out=left_out,
    )


def _write_cases(
    name: str,
    cases: Sequence[Case],
    waiting: Sequence[Case],
    out: Path,
    workers: int | None,
    steps: StepCounter,
    announce: Callable[[ImportCost], None] | None,
) -> tuple[dict[str, str], dict[str, EpisodeSummary]]:
    """Import the waiting cases; return failed cases with their reasons, and the summaries of new episodes."""
    left_out: dict[str, str] = {}
    summaries: dict[str, EpisodeSummary] = {}
    reported_steps = 0
    for number, imported in enumerate(import_cases(name, waiting, out, workers), start=1):
        key, outcome = imported.case.key, imported.outcome
        if isinstance(outcome, str):
            left_out[key] = outcome
        else:
            if isinstance(outcome, EpisodeSummary):
                summaries[episode_id(name, key)] = outcome
            is_typical = not imported.was_first or imported.seconds > _LONG_CASE_S
            if announce is not None and (is_typical or number == len(waiting)):
                count = worker_count(len(waiting), workers)
                cost = ImportCost(
                    cases=len(cases),
                    waiting=len(waiting),
                    faulty=sum(case.has_fault is True for case in cases),
                    healthy=sum(case.has_fault is False for case in cases),
                    workers=count,
                    seconds=imported.seconds * len(waiting) / count,
                    disk_bytes=sum(record.bytes for record in outcome.files.values()) * len(waiting),
                )
                announce(cost)
                announce = None
        if announce is None or number == len(waiting):
            # Show progress after the estimate, and keep the last step for the version.
            finished = min(number, len(waiting) - 1)
            steps.add(finished - reported_steps)
            reported_steps = finished
    return left_out, summaries


def _build_failure(left_out: Mapping[str, str], cases: int) -> DataError:
    first = next(iter(left_out.values()))
    remedy = "repair them and run again"
    if len(left_out) < cases:
        remedy += ", or leave them out with --skip-bad; no version was created"
    return DataError(f"cannot import {len(left_out)} of {count_text(cases, 'case')} (first: {first}); {remedy}")


def _check_cases(importer: ImportFormat, path: Path, cases: Sequence[Case]) -> None:
    if not cases:
        raise DataError(f'{path} holds no {importer.title} case; run "faultset dataset doctor {path}"')
    key, count = Counter(case.key for case in cases).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path} holds the case {key} twice; import the two folders into two datasets")


def _refuse_other_data(out: Path) -> None:
    if out.is_file():
        raise DataError(f"{out} must be a folder, but is a file; give a folder for the imported dataset")
    if not out.is_dir() or (out / IMPORTS).is_dir():
        return
    others = sorted(entry.name for entry in out.iterdir() if entry.name != LOCK)
    if others:
        raise DataError(f"{out} holds other data ({others[0]}); give a new folder for the imported dataset")


def _record_source(importer: ImportFormat, source: ImportSource, out: Path, cases: Mapping[str, Case]) -> None:
    """Record the source of each case; refuse a case that was imported from another source or file."""
    inputs = {episode: case.candidates[0] for episode, case in cases.items() if case.candidates}
    name = hashlib.sha256(f"{importer.name}\0{source.path}".encode()).hexdigest()[:12]
    folder = out / IMPORTS
    with translate_disk_full(out):
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise DataError(f"{folder} must be a folder, not a link; replace the link with the folder")
        for other in sorted(folder.glob("*.json")):
            record = read_document(other, ImportRecord, limit_bytes=_RECORD_BYTES, below=out)
            for episode in sorted(cases.keys() & record.cases.keys()):
                earlier_source = record.path if other.stem != name else record.inputs.get(episode)
                if earlier_source not in (None, inputs.get(episode)):
                    raise DataError(
                        f"case {cases[episode].key} was imported into {out} from {earlier_source}; "
                        "choose another folder for this import"
                    )
        keys = {episode: case.key for episode, case in cases.items()}
        record = ImportRecord(format=importer.name, path=source.path, cases=keys, inputs=inputs)
        replace_text(folder / f"{name}.json", json.dumps(asdict(record), indent=1, sort_keys=True) + "\n")


def _create_version(
    importer: ImportFormat,
    source: ImportSource,
    out: Path,
    cases: Sequence[Case],
    left_out: Mapping[str, str],
    summaries: Mapping[str, EpisodeSummary],
) -> tuple[str, bool]:
    for folder in (out / EPISODES, out / RECORDINGS):
        for stale in folder.glob(f"*{INCOMPLETE}"):
            # Left by a killed import; this process holds the lock.
            shutil.rmtree(stale, ignore_errors=True)
    versions = list_versions(out)
    if versions:
        newest = read_version(out)
        if (sorted(newest.episodes), sorted(newest.recordings)) == (complete_episodes(out), complete_recordings(out)):
            return versions[-1], False
    provenance: dict[str, Any] = {
        "import": {
            "format": importer.name,
            "title": importer.title,
            "path": source.path,
            "cases": len(cases),
            "inputs": count_inputs([case for case in cases if case.key not in left_out]),
            "left_out": dict(sorted(left_out.items())),
            "weakness": importer.weakness,
            **source.details,
        }
    }
    return create_version(out, summaries=summaries, provenance=provenance), True
