"""Running an import: many cases in parallel, each an episode that is whole or absent, then one version of all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, UsageError
from faultset.core.files import replace_text, translate_write_errors
from faultset.core.locks import LOCK, locked
from faultset.core.printable import size_text
from faultset.core.reading.documents import STRICT, read_document
from faultset.core.times import duration_text
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE
from faultset.datasets.format.schemas import EpisodeId, Name
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import (
    EpisodeSummary,
    complete_episodes,
    create_version,
    list_versions,
    read_manifest,
)
from faultset.datasets.imports.cases import episode_id, imported_cases, worker_count
from faultset.datasets.imports.contract import Case, ImportFormat, choose_input, count_inputs
from faultset.datasets.imports.registry import format_named, reading


@dataclass(frozen=True, kw_only=True)
class ImportCost:
    """Size of an import and what it takes."""

    cases: int
    """Cases of the source."""
    waiting: int
    """Cases that are not imported yet."""
    faulty: int
    """Cases with a fault."""
    healthy: int
    """Cases without a fault; of the others only reading them tells."""
    workers: int
    """Number of cases that are read at once."""
    seconds: float
    """Estimated time of the import."""
    disk_bytes: int
    """Estimated size of the new episodes."""

    def __str__(self) -> str:
        unknown = self.cases - self.faulty - self.healthy
        counts = f"{self.faulty} with a fault, {self.healthy} without" + (f", {unknown} unknown" if unknown else "")
        already = "" if self.waiting == self.cases else f", {self.waiting} of them to import"
        noun = "case" if self.cases == 1 else "cases"
        return (
            f"{self.cases} {noun} ({counts}){already}: about {duration_text(self.seconds)} and "
            f"{size_text(self.disk_bytes)}, {self.workers} at a time"
        )


def estimate_cost(
    cases: Sequence[Case], waiting: int, workers: int, case_seconds: float, case_bytes: int
) -> ImportCost:
    """Return what an import takes when every case takes what one has taken."""
    return ImportCost(
        cases=len(cases),
        waiting=waiting,
        faulty=sum(case.has_fault is True for case in cases),
        healthy=sum(case.has_fault is False for case in cases),
        workers=workers,
        seconds=case_seconds * waiting / workers,
        disk_bytes=case_bytes * waiting,
    )


IMPORTS = "imports"
_RECORD_BYTES = 64 << 20
_LONG_CASE_S = 5.0
"""A case that takes longer shows what others take, although libraries were loaded in its time."""


@dataclass(frozen=True, kw_only=True)
class ImportRecord:
    """Content of `imports/<id>.json`: which case of which source each episode is."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    format: Name
    path: str
    cases: Mapping[EpisodeId, str]
    """Episode -> key of its case."""
    inputs: Mapping[EpisodeId, str] = field(default_factory=dict[str, str])
    """Episode -> name of the file that it is read from, where its case has a choice."""


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """What an import has made."""

    version: str
    """Version that holds the cases."""
    is_new: bool
    """Whether this run made the version."""
    episodes: int
    """Cases that were found."""
    written: int
    """Episodes that this run wrote; the others were there."""
    left_out: Mapping[str, str]
    """Case -> why it could not be imported."""


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
) -> ImportResult:
    """Import foreign data into a dataset, and make a version of it.

    An import that was interrupted, in whatever way, is finished by running it again.

    Parameters
    ----------
    name
        Format, a name in the entry-point group `faultset.importers`.
    path
        Folder or file of the foreign data; it is only read.
    out
        Dataset folder: new, empty, or made by an import before.
    workers
        Processes; as many as there are processors by default.
    skip_bad
        Leave out cases that cannot be imported. Otherwise they are an error, and no version is made.
    input_file
        Name of the file to read, for cases that have several with the same telemetry; by default the one that the
        source's own programs read.
    progress
        Told how many cases are finished, and of how many; the last one counts when the version is written.
    announce
        Told once what the import takes, as soon as the first cases show it.

    Raises
    ------
    UsageError
        There is no such format, or there are to be fewer than one worker.
    DataError
        There is no case at `path`, a case cannot be imported and is not to be skipped, or `out` holds other data.
    """
    path, out = Path(path), Path(out)
    found = format_named(name)
    if not path.exists():
        raise DataError(f"there is nothing at {path}; give the folder of the {found.title} data")
    if workers is not None and workers < 1:
        raise UsageError(f"an import needs at least one worker, not {workers}")
    with reading(found, str(path)):
        cases = found.cases(path)
    cases = choose_input(_checked(found, path, cases), input_file, found.title)
    with translate_write_errors(out):
        _refuse_other_data(out)
        with translate_disk_full(out):
            out.mkdir(parents=True, exist_ok=True)
    with locked(out, "import"):
        return _imported(found, path, out, cases, workers, skip_bad, progress, announce)


def _imported(
    found: ImportFormat,
    path: Path,
    out: Path,
    cases: Sequence[Case],
    workers: int | None,
    skip_bad: bool,
    progress: Progress | None,
    announce: Callable[[ImportCost], None] | None,
) -> ImportResult:
    ids = {episode_id(found.name, case.key): case for case in cases}
    _remember(found, path, out, ids)
    there = set(complete_episodes(out))
    waiting = [case for episode, case in ids.items() if episode not in there]
    steps = StepCounter(len(cases), progress)
    steps.add(len(cases) - max(1, len(waiting)))
    left_out: dict[str, str] = {}
    summaries: dict[str, EpisodeSummary] = {}
    counted = 0
    for number, imported in enumerate(imported_cases(found.name, waiting, out, workers), start=1):
        key, outcome = imported.case.key, imported.outcome
        if isinstance(outcome, str):
            left_out[key] = outcome
        else:
            summaries[episode_id(found.name, key)] = outcome
            shows_cost = not imported.was_first or imported.seconds > _LONG_CASE_S or number == len(waiting)
            if announce is not None and shows_cost:
                size = sum(record.bytes for record in outcome.files.values())
                count = worker_count(len(waiting), workers)
                announce(estimate_cost(cases, len(waiting), count, imported.seconds, size))
                announce = None
        if announce is None or number == len(waiting):
            # The estimate is the first line, and the last step is that of the version.
            finished = min(number, len(waiting) - 1)
            steps.add(finished - counted)
            counted = finished
    if left_out and (not skip_bad or len(left_out) == len(cases)):
        first = next(iter(left_out.values()))
        remedy = "repair them and run again" if len(left_out) == len(cases) else (
            "repair them and run again, or leave them out with --skip-bad; no version was made"
        )  # fmt: skip
        raise DataError(f"{len(left_out)} of {len(cases)} cases cannot be imported (first: {first}); {remedy}")
    version, is_new = _version(found, path, out, cases, left_out, summaries)
    steps.add()
    return ImportResult(
        version=version, is_new=is_new, episodes=len(cases), written=len(waiting) - len(left_out), left_out=left_out
    )


def _checked(found: ImportFormat, path: Path, cases: Sequence[Case]) -> Sequence[Case]:
    if not cases:
        raise DataError(f'{path} holds no {found.title} case; "faultset dataset doctor {path}" says what it is')
    seen: set[str] = set()
    for case in cases:
        if case.key in seen:
            raise DataError(f"{path} holds the case {case.key} twice; import the two folders into two datasets")
        seen.add(case.key)
    return cases


def _refuse_other_data(out: Path) -> None:
    if out.is_file():
        raise DataError(f"{out} is a file; give a folder for the imported dataset")
    if not out.is_dir() or (out / IMPORTS).is_dir():
        return
    others = sorted(entry.name for entry in out.iterdir() if entry.name != LOCK)
    if others:
        raise DataError(f"{out} holds other data ({others[0]}); give a new folder for the imported dataset")


def _remember(found: ImportFormat, path: Path, out: Path, cases: Mapping[str, Case]) -> None:
    """Write down what comes from where, before it does; refuse a case that came from elsewhere or another file."""
    source = str(path.resolve())
    inputs = {episode: case.candidates[0] for episode, case in cases.items() if case.candidates}
    name = hashlib.sha256(f"{found.name}\0{source}".encode()).hexdigest()[:12]
    folder = out / IMPORTS
    with translate_disk_full(out):
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise DataError(f"{folder} is a link, and links are not followed; put the folder itself there")
        for other in sorted(folder.glob("*.json")):
            record = read_document(other, ImportRecord, limit_bytes=_RECORD_BYTES, below=out)
            for episode in sorted(cases.keys() & record.cases.keys()):
                former = record.path if other.stem != name else record.inputs.get(episode)
                if former not in (None, inputs.get(episode)):
                    raise DataError(
                        f"case {cases[episode].key} was imported into {out} from {former} before; "
                        "choose another folder for this import"
                    )
        keys = {episode: case.key for episode, case in cases.items()}
        record = ImportRecord(format=found.name, path=source, cases=keys, inputs=inputs)
        replace_text(folder / f"{name}.json", json.dumps(asdict(record), indent=1, sort_keys=True) + "\n")


def _version(
    found: ImportFormat,
    path: Path,
    out: Path,
    cases: Sequence[Case],
    left_out: Mapping[str, str],
    summaries: Mapping[str, EpisodeSummary],
) -> tuple[str, bool]:
    for stale in (out / EPISODES).glob(f"*{INCOMPLETE}"):
        # Nobody else writes here: what a killed run has left is of no use to anybody.
        _remove(stale)
    known = list_versions(out)
    if known and sorted(read_manifest(out).episodes) == complete_episodes(out):
        return known[-1], False
    provenance: dict[str, Any] = {
        "import": {
            "format": found.name,
            "title": found.title,
            "path": str(path.resolve()),
            "cases": len(cases),
            "inputs": count_inputs([case for case in cases if case.key not in left_out]),
            "left_out": dict(sorted(left_out.items())),
            "weakness": found.weakness,
        }
    }
    return create_version(out, summaries=summaries, provenance=provenance), True


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
