"""Conformance check for formats of recorded runs, to be called from the tests of a plug-in."""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
import time
from pathlib import Path

from faultset.agents.formats.contract import ImportOptions, agent_format
from faultset.agents.imports import import_runs, score_runs
from faultset.agents.runs.record import read_runs, read_truths, trajectory_file
from faultset.agents.trajectory import Trajectory
from faultset.core.errors import DataError, FaultsetError
from faultset.datasets.testing import mutate, mutation_seeds

LONGEST_S = 60.0
"""Time limit for one damaged sample."""


def check_agent_format(name: str, sample: Path | str) -> None:
    """Check an installed format with a small sample of its runs.

    1. Files are found in a stable order; an empty folder raises DataError.
    2. Runs have unique keys.
    3. An import writes valid ATIF v1.7 files whose hashes match the table. It is repeatable and can be scored.
    4. A failed import leaves nothing behind.
    5. With random changes in a file, an import succeeds or fails with one sentence. The environment variable
       `FAULTSET_MUTATIONS` sets the number of changes, or their seeds: `2000-3000`.

    Parameters
    ----------
    name
        Name in the entry-point group `faultset.agent_formats`.
    sample
        Folder or file with at least one valid run; it is not modified.

    Raises
    ------
    AssertionError
        A check failed; the message says which.
    """
    sample = Path(sample)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _check_files(name, sample, folder)
        _check_import(name, sample, folder)
        _check_mutations(name, sample, folder)


def _check_files(name: str, sample: Path, folder: Path) -> None:
    source = agent_format(name)
    files = source.files(sample)
    assert files, f"{name} finds no file in {sample}"
    assert [*files] == [*source.files(sample)], f"{name} finds different files, or a different order, the second time"
    for file in files:
        keys = [run.key for run in source.runs(file, ImportOptions())]
        assert len(set(keys)) == len(keys), f"{name} uses one key for several runs of {file.name}"
    empty = folder / "empty"
    empty.mkdir()
    try:
        source.files(empty)
    except DataError:
        return
    raise AssertionError(f"{name} finds runs in an empty folder; it must raise DataError")


def _check_import(name: str, sample: Path, folder: Path) -> None:
    first, second = folder / "first", folder / "second"
    imported = import_runs(name, sample, first)
    import_runs(name, sample, second)
    contents = [{p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()} for out in (first, second)]
    assert contents[0] == contents[1], f"{name} writes different files when the import is repeated"
    assert read_runs(first) == [*imported.runs], f"{name} returns records that differ from its table"
    for run in imported.runs:
        content = trajectory_file(first, run).read_bytes()
        Trajectory.model_validate_json(content)
        assert hashlib.sha256(content).hexdigest() == run.trajectory_sha256, f"{name}: the hash of {run.run} is wrong"
        assert run.format == name, f'{name} says that a run is of the format "{run.format}"'
        if run.status == "ok":
            assert run.answer_json is not None, f"{name} says that {run.run} is ok, but it has no answer"
    truths = read_truths(first)
    for scored in score_runs(first):
        truth = truths[scored.run.run]
        assert truth.truth_json is None or truth.label_version, f"{name} returns a label without its version"
        if scored.success and scored.value is not None:
            assert scored.value == 1.0, f"{name} scores a success with {scored.value}"


def _check_mutations(name: str, sample: Path, folder: Path) -> None:
    copy = folder / "mutated" / sample.name
    copy.parent.mkdir()
    if sample.is_dir():
        shutil.copytree(sample, copy)
    else:
        shutil.copy(sample, copy)
    files = [copy] if copy.is_file() else sorted(path for path in copy.rglob("*") if path.is_file())
    for seed in mutation_seeds():
        rng = random.Random(seed)
        file, out = rng.choice(files), folder / "from-mutated"
        original = file.read_bytes()
        file.chmod(0o600)
        file.write_bytes(mutate(original, rng))
        started = time.monotonic()
        try:
            import_runs(name, copy, out)
        except FaultsetError as error:
            if not str(error).isprintable():
                raise AssertionError(f"{name} reports mutation {seed} with more than one sentence: {error}") from error
            leftovers = [path.name for path in folder.iterdir() if "from-mutated" in path.name]
            assert not leftovers, f"{name} leaves {leftovers} behind after mutation {seed}"
        except Exception as error:
            where = f"mutation {seed} of {file.name}"
            raise AssertionError(f"{name} ends in {type(error).__name__} with {where}: {error}") from error
        else:
            for run in read_runs(out):
                Trajectory.model_validate_json(trajectory_file(out, run).read_bytes())
            score_runs(out)
        elapsed_s = time.monotonic() - started
        assert elapsed_s < LONGEST_S, f"{name} takes {elapsed_s:.0f} s for mutation {seed} of {file.name}"
        shutil.rmtree(out, ignore_errors=True)
        file.write_bytes(original)
