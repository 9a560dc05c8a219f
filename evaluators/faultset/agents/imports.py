"""Importing recorded runs into one folder, whole or absent, and scoring them by their sources' own labels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faultset.agents.formats.contract import AgentFormat, ImportedRun, ImportOptions, agent_format, agent_format_names
from faultset.agents.runs.record import (
    TRAJECTORIES,
    AgentRun,
    RunTruth,
    read_runs,
    read_truths,
    trajectory_file,
    write_tables,
)
from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, FaultsetError
from faultset.core.files import translate_resource_errors, translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.printable import printable

_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class ImportedRuns:
    """What an import of runs has made."""

    folder: Path
    """Where the runs are."""
    files: int
    """Files that were found."""
    runs: Sequence[AgentRun]
    """A record of each run."""
    left_out: Mapping[str, str]
    """File -> why it could not be read."""


def import_runs(
    name: str,
    path: Path | str,
    out: Path | str,
    *,
    agent: str | None = None,
    model: str | None = None,
    candidates: Sequence[str] = (),
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> ImportedRuns:
    """Import recorded runs of agents into a new folder.

    Parameters
    ----------
    name
        Format, a name in the entry-point group `faultset.agent_formats`.
    path
        File or folder of the recorded runs; it is only read.
    out
        Folder to make; it must not exist, or be empty.
    agent, model
        Names for sources that do not give them.
    candidates
        Services that an answer may name.
    skip_bad
        Leave out files that cannot be read. Otherwise they are an error, and nothing is written.
    progress
        Told how many files are finished, and of how many.

    Raises
    ------
    DataError
        A file cannot be read, or there is no run.
    """
    path, out = Path(path), Path(out)
    found = agent_format(name)
    options = ImportOptions(agent=agent, model=model, candidates=tuple(candidates))
    files = found.files(path)
    root = path if path.is_dir() else path.parent
    runs: list[AgentRun] = []
    truths: list[RunTruth] = []
    left_out: dict[str, str] = {}
    taken: set[str] = set()
    counter = StepCounter(len(files), progress)
    with translate_resource_errors(out), translate_write_errors(out), new_folder(out, "import of runs") as folder:
        (folder / TRAJECTORIES).mkdir()
        for file in files:
            key = file.relative_to(root).as_posix()
            try:
                read = _read(found, file, key, options)
            except DataError as error:
                left_out[key] = str(error)
            else:
                for one in read:
                    run, truth = _written(folder, one, taken)
                    runs.append(run)
                    truths.append(truth)
            counter.add()
        if left_out and not skip_bad:
            raise DataError(_refusal(left_out, len(files)) + _other_format(root / next(iter(left_out)), name))
        if not runs:
            other = _other_format(root / next(iter(left_out)), name) if left_out else ""
            raise DataError(f"{printable(path)} holds no {found.title} run that can be read; {_first(left_out)}{other}")
        write_tables(folder, runs, truths)
    return ImportedRuns(folder=out, files=len(files), runs=runs, left_out=left_out)


def _read(found: AgentFormat, file: Path, key: str, options: ImportOptions) -> list[ImportedRun]:
    content_hash = ""
    read = []
    for one in found.runs(file, options):
        content_hash = content_hash or _file_hash(file)
        run = one.run.model_copy(
            update={"run": run_name(f"{key}#{one.key}" if one.key else key), "source_file": key[:500]}
            | {"source_sha256": content_hash}
        )
        trajectory = one.trajectory.model_copy(update={"trajectory_id": run.run})
        read.append(ImportedRun(key=one.key, trajectory=trajectory, run=run, truth=one.truth))
    return read


def _file_hash(file: Path) -> str:
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def run_name(key: str) -> str:
    """Return the name of a run: what can be read of its key, and enough of its hash to be unique.

    Examples
    --------
    >>> run_name("gpt/0647a98b_17.json")
    'gpt-0647a98b_17-b157e255'
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", key.removesuffix(".json")).strip("._-")[-80:].lstrip("._-")
    return f"{readable or 'run'}-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _written(folder: Path, one: ImportedRun, taken: set[str]) -> tuple[AgentRun, RunTruth]:
    run = one.run
    if run.run in taken:
        raise DataError(f"two runs are called {printable(run.run)}; import them apart")
    taken.add(run.run)
    content = one.trajectory.to_json()
    file = trajectory_file(folder, run)
    file.write_bytes(content)
    place = {"trajectory_path": file.relative_to(folder).as_posix()}
    run = run.model_copy(update=place | {"trajectory_sha256": hashlib.sha256(content).hexdigest()})
    return run, one.truth.model_copy(update={"run": run.run})


def _other_format(file: Path, name: str) -> str:
    """Return a hint at the format that can read a file; empty if none can."""
    for other in agent_format_names():
        with suppress(FaultsetError):
            if other != name and agent_format(other).runs(file, ImportOptions()):
                return f". It is readable as {agent_format(other).title}: use faultset agents import {other}"
    return ""


def _first(left_out: Mapping[str, str]) -> str:
    return next(iter(left_out.values()), "give another folder")


def _refusal(left_out: Mapping[str, str], files: int) -> str:
    if len(left_out) == 1:
        return _first(left_out)
    shown = "; ".join(list(left_out.values())[:_SHOWN])
    return f"{len(left_out)} of {files} files cannot be read: {shown}; repair them, or leave them out with --skip-bad"


_MISSES = ("harness_error", "cheated")


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """One run with its result by its source's own labels."""

    run: AgentRun
    """What the agent did."""
    truth: RunTruth
    """What the source says of it."""
    success: bool | None
    """None where the source's labels, or a recording, do not tell."""
    value: float | None
    """Score from 0 to 1; None where `success` is."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Name of a part of the score -> its value."""
    difference: str = ""
    """Why the result is not the recorded one; empty where it is, or where the reason is not known."""

    @property
    def agrees(self) -> bool | None:
        """Whether the result is the recorded one; None where there are not both."""
        if self.success is None or self.truth.recorded_success is None:
            return None
        return self.success == self.truth.recorded_success


def score_runs(folder: Path | str) -> list[ScoredRun]:
    """Score the runs of a folder that `import_runs` has made, each against its own source's labels.

    A run without an answer, of a broken harness, or in which the agent cheated, is a miss.

    Raises
    ------
    DataError
        It is no such folder, or it is damaged.
    """
    truths = read_truths(folder)
    formats: dict[str, AgentFormat] = {}
    found = []
    for run in read_runs(folder):
        if run.run not in truths:
            raise DataError(f"{printable(folder)} holds no truth of {printable(run.run)}; import the runs again")
        if run.format not in formats:
            formats[run.format] = agent_format(run.format)
        found.append(_scored(formats[run.format], run, truths[run.run]))
    return found


def _scored(source: AgentFormat, run: AgentRun, truth: RunTruth) -> ScoredRun:
    own = source.score(run, truth.truth) if truth.truth is not None else None
    if own is None:
        return ScoredRun(run=run, truth=truth, success=None, value=None)
    missed = run.status in _MISSES or run.answer_json is None
    success, value = (False, 0.0) if missed else (own.success, own.value)
    parts = {} if missed else own.parts
    difference = ""
    if truth.recorded_success is not None and success != truth.recorded_success:
        difference = _difference(source, run, truth, success)
    return ScoredRun(run=run, truth=truth, success=success, value=value, parts=parts, difference=difference)


def _difference(source: AgentFormat, run: AgentRun, truth: RunTruth, success: bool) -> str:
    if run.status in _MISSES:
        return f"{run.status}: {run.status_reason}"
    return source.difference(run, truth, success)
