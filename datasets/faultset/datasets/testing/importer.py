"""Check of what every importer promises; it needs the importer's name and a small sample of its data."""

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
from faultset.datasets.format.manifests import VERSIONS
from faultset.datasets.format.versions import complete_episodes, hashes_below
from faultset.datasets.imports.cases import import_or_say_why
from faultset.datasets.imports.contract import DataIssue, ImportFormat, collect_issues
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.imports.registry import format_named, is_recognised, reading
from faultset.datasets.testing.mutations import mutated, mutation_seeds
from faultset.datasets.validation import check_content

_DAMAGED_FILES = 12
_COMPLETE_EVERY = 6
"""Of so many mutations one goes through a whole import, with its record and version; the others only through cases."""
LONGEST_S = 60.0
"""How long one damaged sample may take."""


def check_importer(name: str, sample: Path | str) -> None:
    """Check an importer that is installed under `name` with a small sample of data in its format.

    The checks: the sample is recognised, and an empty folder is not; its cases have unique keys, are the same each
    time and can be sent to other processes; a dataset made by one process equals one made by two, passes `verify`, and
    is complete when the import runs again; issues with the data are reported as `DataIssue`; whatever file is cut
    short, the import works or ends in one sentence; and the same holds for random changes of files, where besides what
    is imported must be a sound dataset. The environment variable `FAULTSET_MUTATIONS` says how many changes are tried,
    or which: `2000-3000`.

    Parameters
    ----------
    name
        Name in the entry-point group `faultset.importers`.
    sample
        Folder or file with at least one case that can be imported. It is only read.

    Raises
    ------
    AssertionError
        With a sentence on what the importer does not keep.
    """
    sample, found = Path(sample), format_named(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _check_recognition(found, name, sample, folder)
        _check_cases(found, sample)
        _check_issues(found, sample)
        _check_datasets(name, sample, folder)
        _check_damage(name, sample, folder)
        _check_mutations(name, sample, folder)


def _check_recognition(found: ImportFormat, name: str, sample: Path, folder: Path) -> None:
    assert found.name == name, f'the importer announced as "{name}" calls itself "{found.name}"'
    assert found.recognises(sample), f"{name} does not recognise its own sample {sample}"
    empty = folder / "empty"
    empty.mkdir()
    for path in (empty, folder / "absent"):
        assert not found.recognises(path), f"{name} recognises {path.name} data"
    try:
        found.cases(empty)
    except DataError:
        return
    raise AssertionError(f"{name} finds cases in an empty folder; it must raise DataError")


def _check_cases(found: ImportFormat, sample: Path) -> None:
    cases, again = found.cases(sample), found.cases(sample)
    keys = [case.key for case in cases]
    assert keys, f"{found.name} finds no case in {sample}"
    assert len(set(keys)) == len(keys), f"{found.name} gives one key to several cases"
    assert keys == [case.key for case in again], f"{found.name} finds other cases, or another order, the second time"
    assert pickle.loads(pickle.dumps(cases)) == cases, f"cases of {found.name} change on their way to a process"


def _check_issues(found: ImportFormat, sample: Path) -> None:
    with collect_issues() as issues:
        for case in found.cases(sample):
            try:
                found.load(case)
            except DataError:
                continue
    for issue in issues:
        assert isinstance(issue, DataIssue), f"{found.name} reports {issue!r}, which is no DataIssue"
        assert issue.problem, f"{found.name} reports an issue that says nothing"
        assert issue.handling, f"{found.name} does not say what it does about: {issue.problem}"


def _check_datasets(name: str, sample: Path, folder: Path) -> None:
    one, two = folder / "one", folder / "two"
    done = import_dataset(name, sample, one, workers=1, skip_bad=True)
    import_dataset(name, sample, two, workers=2, skip_bad=True)
    assert done.written, f"{name} imports none of the cases of {sample}: {dict(done.left_out)}"
    assert hashes_below(one / EPISODES) == hashes_below(two / EPISODES), (
        f"{name} writes other files with two processes than with one"
    )
    errors = [str(finding) for finding in verify(one) if finding.severity == "error"]
    assert not errors, f"the dataset that {name} makes does not pass verify: {errors[0]}"
    dataset = open_dataset(one)
    for episode in dataset.episodes:
        label, services = dataset.label(episode), dataset.view(episode).services
        unknown = {*label.targets, *(cause.service for cause in label.root_causes if cause.service)} - {*services}
        assert not unknown, f"{name} names {sorted(unknown)} in the label of {episode}, who are no candidates"
        evidence = dataset[episode].evidence
        assert (evidence["check"] == "input").any(), f"{name} does not say which files {episode} was read from"
    again = import_dataset(name, sample, one, workers=1, skip_bad=True)
    assert not again.written, f"{name} writes {again.written} episodes again; ids must follow from keys"


def _copied(sample: Path, copy: Path) -> tuple[Path, list[Path]]:
    """Copy a sample and return the copy and its files."""
    if not sample.is_dir():
        copy.mkdir()
        copy = Path(shutil.copy(sample, copy / sample.name))
        return copy, [copy]
    shutil.copytree(sample, copy)
    return copy, sorted(path for path in copy.rglob("*") if path.is_file())


def _check_mutations(name: str, sample: Path, folder: Path) -> None:
    copy, files = _copied(sample, folder / "mutated")
    found = format_named(name)
    for seed in mutation_seeds():
        rng = random.Random(seed)
        file, out = rng.choice(files), folder / "from-mutated"
        whole = file.read_bytes()
        file.write_bytes(mutated(whole, rng))
        started = time.monotonic()
        try:
            if is_recognised(found, copy):
                with collect_issues(), reading(found, str(copy)):
                    found.cases(copy)
            if seed % _COMPLETE_EVERY:
                _import_cases(found, copy, out)
            else:
                import_dataset(name, copy, out, workers=1, skip_bad=True)
        except FaultsetError as error:
            if not str(error).isprintable():
                raise AssertionError(f"{name} says more than a sentence of mutation {seed}: {error}") from error
        except Exception as error:
            where = f"{file.name} of mutation {seed}"
            raise AssertionError(f"{name} ends in {type(error).__name__} with {where}: {error}") from error
        else:
            try:
                _check_sound(out)
            except DataError as error:
                where = f"mutation {seed} of {file.name}"
                raise AssertionError(f"{name} makes an unsound dataset from {where}: {error}") from error
        elapsed_s = time.monotonic() - started
        assert elapsed_s < LONGEST_S, f"{name} takes {elapsed_s:.0f} s for mutation {seed} of {file.name}"
        shutil.rmtree(out, ignore_errors=True)
        file.write_bytes(whole)


def _import_cases(found: ImportFormat, sample: Path, out: Path) -> None:
    """Write the episodes as an import does, without what is the same for every format: lock, record and version."""
    with reading(found, str(sample)):
        cases = found.cases(sample)
    for case in cases:
        with collect_issues():
            import_or_say_why(found, case, out)


def _check_sound(out: Path) -> None:
    if (out / VERSIONS).is_dir():
        open_dataset(out).check_files(1)
        return
    for episode in complete_episodes(out):
        check_content(out / EPISODES / episode, episode)


def _check_damage(name: str, sample: Path, folder: Path) -> None:
    copy, files = _copied(sample, folder / "damaged")
    for number, file in enumerate(files[:: max(1, len(files) // _DAMAGED_FILES)]):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        out = folder / f"from-damaged-{number}"
        try:
            import_dataset(name, copy, out, workers=1)
        except FaultsetError as error:
            if "\n" in str(error):
                raise AssertionError(f"{name} says more than a sentence of a damaged {file.name}: {error}") from error
        except Exception as error:
            where = f"{file.name} cut to half its length"
            raise AssertionError(f"{name} ends in {type(error).__name__} with {where}: {error}") from error
        left = [path.name for path in (out / "episodes").glob("*.incomplete")]
        assert not left, f"{name} leaves half an episode after an error with {file.name}"
        file.write_bytes(whole)
