"""Check an importer, given its name and a small sample of its data."""

from __future__ import annotations

import pickle
import random
import shutil
import tempfile
import time
from pathlib import Path

from faultset.core.errors import DataError, FaultsetError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.file_records import hashes_below
from faultset.datasets.format.recordings import RECORDINGS, complete_recordings
from faultset.datasets.format.version_files import VERSIONS
from faultset.datasets.format.versions import complete_episodes
from faultset.datasets.imports.cases import try_import
from faultset.datasets.imports.contract import DataIssue, ImportFormat, collect_issues
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.imports.registry import is_recognised, load_format, reading
from faultset.datasets.recordings.validation import recording_problems
from faultset.datasets.testing.mutations import mutate, mutation_seeds
from faultset.datasets.validation import check_content

_MAX_DAMAGED_FILES = 12
_FULL_IMPORT_INTERVAL = 6
"""One of this many mutations is tried with a full import, the others with an import of the cases only."""
LONGEST_S = 60.0
"""Maximum time for one damaged sample."""


def check_importer(name: str, sample: Path | str) -> None:
    """Check an importer that is installed under `name` with a small sample of data in its format.

    - The sample is recognised; an empty folder is not.
    - Cases have unique keys, are the same each time, and can be sent to other processes.
    - One process and two processes write the same dataset; it passes `verify`, and a second import adds nothing.
    - Issues of the data are reported as `DataIssue`.
    - If a file is truncated or changed at random, the import succeeds or raises an error with a one-line message, and
      what it wrote is valid. The environment variable `FAULTSET_MUTATIONS` sets the number of changes, or
      their seeds: `2000-3000`.

    Parameters
    ----------
    name
        Name in the entry-point group `faultset.importers`.
    sample
        Folder or file with at least one case that can be imported. It is only read.

    Raises
    ------
    AssertionError
        A check fails; the message describes it.
    """
    sample, importer = Path(sample), load_format(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _check_recognition(importer, name, sample, folder)
        _check_cases(importer, sample)
        _check_issues(importer, sample)
        _check_datasets(name, sample, folder)
        _check_damage(name, sample, folder)
        _check_mutations(name, sample, folder)


def _check_recognition(importer: ImportFormat, name: str, sample: Path, folder: Path) -> None:
    assert importer.name == name, f'the importer registered as "{name}" has the name "{importer.name}"'
    assert importer.recognises(sample), f"{name} does not recognise its sample {sample}"
    empty = folder / "empty"
    empty.mkdir()
    for path in (empty, folder / "absent"):
        assert not importer.recognises(path), f"{name} recognises {path.name} data"
    try:
        importer.cases(empty)
    except DataError:
        return
    raise AssertionError(f"{name} finds cases in an empty folder; it must raise DataError")


def _check_cases(importer: ImportFormat, sample: Path) -> None:
    cases, repeated_cases = importer.cases(sample), importer.cases(sample)
    keys = [case.key for case in cases]
    assert keys, f"{importer.name} finds no cases in {sample}"
    assert len(set(keys)) == len(keys), f"{importer.name} gives the same key to several cases"
    assert keys == [case.key for case in repeated_cases], (
        f"{importer.name} must find the same cases in the same order each time"
    )
    assert pickle.loads(pickle.dumps(cases)) == cases, f"cases of {importer.name} change when they are pickled"


def _check_issues(importer: ImportFormat, sample: Path) -> None:
    with collect_issues() as issues:
        for case in importer.cases(sample):
            try:
                importer.load(case)
            except DataError:
                continue
    for issue in issues:
        assert isinstance(issue, DataIssue), f"{importer.name} reports {issue!r} instead of a DataIssue"
        assert issue.problem, f"{importer.name} reports an issue without a description"
        assert issue.handling, f"{importer.name} does not describe how it handles: {issue.problem}"


def _check_datasets(name: str, sample: Path, folder: Path) -> None:
    first, second = folder / "one", folder / "two"
    result = import_dataset(name, sample, first, workers=1, skip_bad=True)
    import_dataset(name, sample, second, workers=2, skip_bad=True)
    assert result.written, f"{name} imports none of the cases of {sample}: {dict(result.left_out)}"
    assert _hash_units(first) == _hash_units(second), f"{name} writes different files with one and with two processes"
    errors = [str(finding) for finding in verify(first) if finding.severity == "error"]
    assert not errors, f"the dataset imported by {name} does not pass verify: {errors[0]}"
    dataset = open_dataset(first)
    for episode in dataset.episodes:
        label, services = dataset.label(episode), dataset.view(episode).services
        unknown = {*label.targets, *(cause.service for cause in label.root_causes if cause.service)} - {*services}
        assert not unknown, f"{name} names {sorted(unknown)} in the label of {episode}, which are not services"
        evidence = dataset[episode].evidence
        assert (evidence["check"] == "input").any(), f"{name} does not record which files {episode} was read from"
    for recording in dataset.recordings():
        checks = recording.evidence()["check"]
        assert (checks == "input").any(), f"{name} does not record which files {recording.id} was read from"
    repeated_result = import_dataset(name, sample, first, workers=1, skip_bad=True)
    assert not repeated_result.written, (
        f"{name} writes {repeated_result.written} cases again; ids must depend on keys only"
    )


def _hash_units(root: Path) -> dict[str, str]:
    """Return the hash of each file of episodes and recordings."""
    folders = [root / name for name in (EPISODES, RECORDINGS) if (root / name).is_dir()]
    return {f"{folder.name}/{name}": sha256 for folder in folders for name, sha256 in hashes_below(folder).items()}


def _copy_sample(sample: Path, copy: Path) -> tuple[Path, list[Path]]:
    """Copy a sample; return the copy and its files."""
    if not sample.is_dir():
        copy.mkdir()
        copy = Path(shutil.copy(sample, copy / sample.name))
        return copy, [copy]
    shutil.copytree(sample, copy)
    return copy, sorted(path for path in copy.rglob("*") if path.is_file())


def _check_mutations(name: str, sample: Path, folder: Path) -> None:
    copy, files = _copy_sample(sample, folder / "mutated")
    importer = load_format(name)
    for seed in mutation_seeds():
        rng = random.Random(seed)
        file, out = rng.choice(files), folder / "from-mutated"
        whole = file.read_bytes()
        file.write_bytes(mutate(whole, rng))
        started = time.monotonic()
        try:
            if is_recognised(importer, copy):
                with collect_issues(), reading(importer, str(copy)):
                    importer.cases(copy)
            if seed % _FULL_IMPORT_INTERVAL:
                _import_cases(importer, copy, out)
            else:
                import_dataset(name, copy, out, workers=1, skip_bad=True)
        except FaultsetError as error:
            if not str(error).isprintable():
                raise AssertionError(f"{name} raises an unprintable message for mutation {seed}: {error}") from error
        except Exception as error:
            mutation = f"mutation {seed} of {file.name}"
            raise AssertionError(f"{name} raises {type(error).__name__} for {mutation}: {error}") from error
        else:
            try:
                _check_valid(out)
            except DataError as error:
                mutation = f"mutation {seed} of {file.name}"
                raise AssertionError(f"{name} writes an invalid dataset for {mutation}: {error}") from error
        elapsed_s = time.monotonic() - started
        assert elapsed_s < LONGEST_S, f"{name} takes {elapsed_s:.0f} s for mutation {seed} of {file.name}"
        shutil.rmtree(out, ignore_errors=True)
        file.write_bytes(whole)


def _import_cases(importer: ImportFormat, sample: Path, out: Path) -> None:
    """Write the cases of an import, without the lock, record and version, which do not depend on the format."""
    with reading(importer, str(sample)):
        cases = importer.cases(sample)
    for case in cases:
        with collect_issues():
            try_import(importer, case, out)


def _check_valid(out: Path) -> None:
    if (out / VERSIONS).is_dir():
        open_dataset(out).check_files(1)
        return
    for episode in complete_episodes(out):
        check_content(out / EPISODES / episode, episode)
    for recording in complete_recordings(out):
        for file, _, problem in recording_problems(out / RECORDINGS / recording, recording):
            raise DataError(f"recording {recording} must be valid, but {file} {problem}; refuse such data")


def _check_damage(name: str, sample: Path, folder: Path) -> None:
    copy, files = _copy_sample(sample, folder / "damaged")
    for number, file in enumerate(files[:: max(1, len(files) // _MAX_DAMAGED_FILES)]):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        out = folder / f"from-damaged-{number}"
        try:
            import_dataset(name, copy, out, workers=1)
        except FaultsetError as error:
            if not str(error).isprintable():
                raise AssertionError(f"{name} raises an unprintable message for {file.name}: {error}") from error
        except Exception as error:
            damage = f"{file.name} truncated to half its length"
            raise AssertionError(f"{name} raises {type(error).__name__} for {damage}: {error}") from error
        incomplete = [path.name for path in out.glob("*/*.incomplete")]
        assert not incomplete, f"{name} leaves an incomplete case after an error in {file.name}"
        file.write_bytes(whole)
