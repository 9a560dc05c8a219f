"""Import recorded runs into a folder atomically, and score them by their sources' labels."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
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
from faultset.core.errors import DataError, FaultsetError
from faultset.core.files import translate_resource_errors, translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import count_text, printable

_MAX_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class ImportedRuns:
    """The result of an import of runs."""

    folder: Path
    """Folder of the runs."""
    files: int
    """Number of source files."""
    runs: Sequence[AgentRun]
    """The imported runs."""
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
        Name of a format in the entry-point group `faultset.agent_formats`.
    path
        File or folder of the recorded runs; it is not modified.
    out
        Target folder; must not exist or must be empty.
    agent, model
        Names for sources that have none.
    candidates
        Services that an answer may name.
    skip_bad
        Skip unreadable files. Otherwise they are an error and nothing is written.
    progress
        Called with the number of finished files and the total.

    Raises
    ------
    DataError
        A file cannot be read, or there is no run.
    """
    path, out = Path(path), Path(out)
    source = agent_format(name)
    options = ImportOptions(agent=agent, model=model, candidates=tuple(candidates))
    files = source.files(path)
    root = path if path.is_dir() else path.parent
    left_out: dict[str, str] = {}
    names: set[str] = set()
    counter = StepCounter(len(files), progress)
    with translate_resource_errors(out), translate_write_errors(out), new_folder(out, "import of runs") as folder:
        (folder / TRAJECTORIES).mkdir()

        def copy_runs() -> Iterator[tuple[AgentRun, RunTruth]]:
            for file in files:
                key = file.relative_to(root).as_posix()
                try:
                    imported = _read_runs(source, file, key, options)
                except DataError as error:
                    left_out[key] = str(error)
                else:
                    yield from (_write_run(folder, item, names) for item in imported)
                counter.add()

        copied = list(copy_runs())
        runs, truths = [run for run, _ in copied], [truth for _, truth in copied]
        if left_out and not skip_bad:
            raise DataError(
                _describe_unreadable_files(left_out, len(files)) + _suggest_format(root / next(iter(left_out)), name)
            )
        if not runs:
            hint = _suggest_format(root / next(iter(left_out)), name) if left_out else ""
            raise DataError(
                f"{printable(path)} holds no readable {source.title} run; {_get_first_problem(left_out)}{hint}"
            )
        write_tables(folder, runs, truths)
    return ImportedRuns(folder=out, files=len(files), runs=runs, left_out=left_out)


def _read_runs(source: AgentFormat, file: Path, key: str, options: ImportOptions) -> list[ImportedRun]:
    content_hash = ""
    runs = []
    for item in source.runs(file, options):
        content_hash = content_hash or _hash_file(file)
        run = item.run.model_copy(
            update={"run": run_name(f"{key}#{item.key}" if item.key else key), "source_file": key[:500]}
            | {"source_sha256": content_hash}
        )
        trajectory = item.trajectory.model_copy(update={"trajectory_id": run.run})
        runs.append(ImportedRun(key=item.key, trajectory=trajectory, run=run, truth=item.truth))
    return runs


def _hash_file(file: Path) -> str:
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def run_name(key: str) -> str:
    """Return the name of a run: the readable part of its key, and a hash that makes it unique.

    Examples
    --------
    >>> run_name("gpt/0647a98b_17.json")
    'gpt-0647a98b_17-b157e255'
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", key.removesuffix(".gz").removesuffix(".json"))
    readable = name.strip("._-")[-80:].lstrip("._-")
    return f"{readable or 'run'}-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _write_run(folder: Path, item: ImportedRun, names: set[str]) -> tuple[AgentRun, RunTruth]:
    run = item.run
    if run.run in names:
        raise DataError(f"two runs have the name {printable(run.run)}; import them into separate folders")
    names.add(run.run)
    content = item.trajectory.to_json()
    file = trajectory_file(folder, run)
    file.write_bytes(content)
    run = run.model_copy(
        update={
            "trajectory_path": file.relative_to(folder).as_posix(),
            "trajectory_sha256": hashlib.sha256(content).hexdigest(),
        }
    )
    return run, item.truth.model_copy(update={"run": run.run})


def _suggest_format(file: Path, name: str) -> str:
    """Return a hint about the format that can read a file; empty if none can."""
    for other in agent_format_names():
        with suppress(FaultsetError):
            if other != name and agent_format(other).runs(file, ImportOptions()):
                return f". It is readable as {agent_format(other).title}: use faultset agents import {other}"
    return ""


def _get_first_problem(left_out: Mapping[str, str]) -> str:
    return next(iter(left_out.values()), "give another folder")


def _describe_unreadable_files(left_out: Mapping[str, str], files: int) -> str:
    if len(left_out) == 1:
        return _get_first_problem(left_out)
    shown = "; ".join(list(left_out.values())[:_MAX_SHOWN])
    return (
        f"cannot read {len(left_out)} of {count_text(files, 'file')}: {shown}; repair them, or skip them with "
        "--skip-bad"
    )


_MISS_STATUSES = ("harness_error", "cheated")


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """A run scored by its source's labels."""

    run: AgentRun
    """The run."""
    truth: RunTruth
    """The source's label and result."""
    success: bool | None
    """None if the source's labels do not determine it."""
    value: float | None
    """Score from 0 to 1; None if `success` is None."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Name -> value of the parts of the score."""
    difference: str = ""
    """Why the result differs from the recorded one; empty if it does not differ or the reason is unknown."""

    @property
    def agrees(self) -> bool | None:
        """Return whether the result equals the recorded one; None if either is missing."""
        if self.success is None or self.truth.recorded_success is None:
            return None
        return self.success == self.truth.recorded_success


def score_runs(folder: Path | str) -> list[ScoredRun]:
    """Score the runs of a folder written by `import_runs`, each by its source's labels.

    A run without an answer, with a harness error, or with cheating is a miss.

    Raises
    ------
    DataError
        The folder is damaged or was not written by `import_runs`.
    """
    truths = read_truths(folder)
    formats: dict[str, AgentFormat] = {}
    results = []
    for run in read_runs(folder):
        if run.run not in truths:
            raise DataError(f"{printable(folder)} has no label for the run {printable(run.run)}; import the runs again")
        if run.format not in formats:
            formats[run.format] = agent_format(run.format)
        results.append(_score_run(formats[run.format], run, truths[run.run]))
    return results


def _score_run(source: AgentFormat, run: AgentRun, truth: RunTruth) -> ScoredRun:
    score = source.score(run, truth.truth) if truth.truth is not None else None
    if score is None:
        return ScoredRun(run=run, truth=truth, success=None, value=None)
    missed = run.status in _MISS_STATUSES or run.answer_json is None
    success, value = (False, 0.0) if missed else (score.success, score.value)
    parts = {} if missed else score.parts
    difference = ""
    if truth.recorded_success is not None and success != truth.recorded_success:
        difference = _explain_difference(source, run, truth, success)
    return ScoredRun(run=run, truth=truth, success=success, value=value, parts=parts, difference=difference)


def _explain_difference(source: AgentFormat, run: AgentRun, truth: RunTruth, success: bool) -> str:
    if run.status in _MISS_STATUSES:
        return f"{run.status}: {run.status_reason}"
    return source.difference(run, truth, success)
