"""Checks of importers and exporters, for the tests of the distributions that provide them."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, FaultsetError
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import ExportOptions, export_dataset, load_layout, write_episodes
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.recordings import RECORDINGS, complete_recordings
from faultset.datasets.format.version_files import VERSIONS, hashes_below
from faultset.datasets.format.versions import complete_episodes
from faultset.datasets.imports.cases import try_import
from faultset.datasets.imports.contract import (
    DataIssue,
    ImportFormat,
    collect_issues,
    is_recognised,
    load_format,
    reading,
)
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.recordings.validation import recording_problems
from faultset.datasets.validation import check_content

__all__ = ["check_exporter", "check_importer"]

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


def check_exporter(name: str, dataset: Path | str | None = None) -> None:
    """Check an exporter that is installed under `name`.

    - Every episode is written or left out with a reason.
    - The same data gives the same files.
    - A folder that is not empty is refused and not changed.
    - Nothing is written outside the folder.

    Parameters
    ----------
    name
        Name in the entry-point group `faultset.exporters`.
    dataset
        Dataset with at least one episode that the layout can hold; by default a synthetic one.

    Raises
    ------
    AssertionError
        A check fails; the message describes it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if dataset is None:
            dataset = folder / "dataset"
            write_example_dataset(dataset, episodes=4)
        dataset = Path(dataset)
        _check_export(name, dataset, folder)
        _check_full_folder(name, dataset, folder)
        _check_location(name, dataset, folder)


def _check_export(name: str, dataset: Path, folder: Path) -> None:
    first, second = folder / "first", folder / "second"
    result = export_dataset(name, dataset, first)
    export_dataset(name, dataset, second)
    expected = len(open_dataset(dataset).episodes)
    assert result.episodes + len(result.left_out) == expected, (
        f"{name} must write or leave out each of {expected} episodes, but writes {result.episodes} and leaves out "
        f"{len(result.left_out)}"
    )
    assert all(result.left_out.values()), f"{name} leaves out episodes without a reason"
    files = hashes_below(first)
    assert files, f"{name} writes no files"
    assert files == hashes_below(second), f"{name} writes different files the second time"


def _check_full_folder(name: str, dataset: Path, folder: Path) -> None:
    full = folder / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    try:
        export_dataset(name, dataset, full)
    except DataError:
        assert [path.name for path in full.iterdir()] == ["mine.txt"], (
            f"{name} changes a folder although it refuses to write into it"
        )
        return
    raise AssertionError(f"{name} writes into a folder that is not empty")


def _check_location(name: str, dataset: Path, folder: Path) -> None:
    content, parent = open_dataset(dataset), folder / "parent"
    out = parent / "out"
    out.mkdir(parents=True)
    layout = load_layout(name)(content, ExportOptions(), out)
    before = _list_outside(parent, out)
    write_episodes(layout, [episode for episode in content.episodes if layout.unavailable_reason(episode) is None])
    assert before == _list_outside(parent, out), f"{name} writes outside its folder"


def _list_outside(folder: Path, out: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if out not in path.parents}


VARIABLE = "FAULTSET_MUTATIONS"
"""Environment variable: number of mutations to try, or a range of seeds such as `2000-3000`."""
_DEFAULT_MUTATIONS = 12
_ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63, -(2**63), 2**80, 1e308, -1e-308, float("nan"), float("inf"), "", "\x00", "\ud800",
    "\x1b[2J", "../../x", "/etc/passwd", "x" * 70_000, [], {}, [[]], {"": {}}, [None], "NaN", "1e999", "٣",
)  # fmt: skip
_ODD_BYTES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b",",
    b'"',
    b"[" * 5000,
    b"{",
    b"-",
    b"9" * 400,
    b"NaN",
    b"\r",
    b"1e999",
)


def mutation_seeds() -> range:
    """Return the seeds of the mutations to try, from the environment or a few by default."""
    first, _, end = os.environ.get(VARIABLE, str(_DEFAULT_MUTATIONS)).rpartition("-")
    return range(int(first or 0), int(end))


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return content with one to three changes; JSON often remains valid, with different values."""
    for _ in range(rng.randint(1, 3)):
        change = rng.choice((_flip, _cut, _splice, _repeat, _insert, _zero, _change_json, _change_json))
        content = change(content, rng)
    return content


def _choose_offset(content: bytes, rng: random.Random) -> int:
    return rng.randint(0, len(content))


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 16))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: _choose_offset(content, rng)]


def _splice(content: bytes, rng: random.Random) -> bytes:
    first, second = sorted((_choose_offset(content, rng), _choose_offset(content, rng)))
    return content[:first] + content[second:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    first = _choose_offset(content, rng)
    second = min(len(content), first + rng.randint(1, 2000))
    return content[:second] + content[first:second] * rng.randint(1, 5) + content[second:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    offset = _choose_offset(content, rng)
    return content[:offset] + rng.choice(_ODD_BYTES) + content[offset:]


def _zero(content: bytes, rng: random.Random) -> bytes:
    first = _choose_offset(content, rng)
    length = min(len(content) - first, rng.randint(1, 4096))
    return content[:first] + bytes(length) + content[first + length :]


def _change_json(content: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _flip(content, rng)
    setters: list[tuple[Callable[[Any], None], Any]] = []

    def visit(node: Any) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            setters.append((lambda new, key=key: node.__setitem__(key, new), node[key]))
            visit(node[key])

    visit(value)
    if setters:
        replace, old = rng.choice(setters)
        replace(rng.choice((*_ODD_VALUES, [old], {"x": old}, str(old))))
    return json.dumps(value).encode("utf-8", "surrogatepass")
