"""Labels and reference gaps that an evaluation has read once: found again while the files stay as they are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faultset.baselines.registry import get_baseline
from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import open_dataset
from faultset.evaluators.execution import dataset_source
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.file_cache import labels_folder
from faultset.evaluators.execution.plan import make_plan
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings


@pytest.fixture
def example_copy(example_dataset: Path, tmp_path: Path) -> Path:
    shutil.copytree(example_dataset, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("FAULTSET_LABELS_BYTES", str(1 << 24))
    return labels_folder()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    seen: list[Path] = []
    label, gaps = dataset_source.read_label, dataset_source.reference_gaps
    monkeypatch.setattr(dataset_source, "read_label", lambda path: seen.append(path) or label(path))
    monkeypatch.setattr(dataset_source, "reference_gaps", lambda view: seen.append(view) or gaps(view))
    return seen


def labels_and_gaps(root: Path) -> tuple[object, list[str]]:
    source = DatasetSource.of(open_dataset(root))
    return source.truths, source.reference_gaps()


def test_nothing_is_read_the_second_time_and_the_same_is_found(example_copy: Path, folder: Path, read: list[Path]):
    first = labels_and_gaps(example_copy)
    assert read
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read == []
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}


def test_gaps_are_found_again_as_they_were(example_copy: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    gaps = dataset_source.ReferenceGaps(no_samples=True, coarse_step=False, without_metrics=("geo",))
    monkeypatch.setattr(dataset_source, "reference_gaps", lambda view: gaps)
    _, first = labels_and_gaps(example_copy)
    assert len(first) == 2
    assert labels_and_gaps(example_copy)[1] == first


@pytest.mark.parametrize("name", ["truth/label.parquet", "context.json"])
def test_a_file_that_was_written_again_is_read_again(example_copy: Path, folder: Path, read: list[Path], name: str):
    first = labels_and_gaps(example_copy)
    path = next((example_copy / "episodes").iterdir()) / name
    path.write_bytes(path.read_bytes())
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read


def test_a_label_that_is_gone_is_missed_although_it_is_known(example_copy: Path, folder: Path):
    dataset = open_dataset(example_copy)
    DatasetSource.of(dataset)
    (dataset.path(dataset.episodes[0]) / "truth" / "label.parquet").unlink()
    with pytest.raises(DataError, match=r"label\.parquet is missing"):
        DatasetSource.of(dataset)


def test_what_is_known_of_one_copy_says_nothing_of_another(
    example_copy: Path, folder: Path, read: list[Path], tmp_path: Path
):
    labels_and_gaps(example_copy)
    shutil.copytree(example_copy, tmp_path / "other", copy_function=shutil.copy2)
    del read[:]
    labels_and_gaps(tmp_path / "other")
    assert read


@pytest.mark.parametrize("content", [b"", b"[", b"[1]", b'{"a": 1}', b"\xff"])
def test_a_damaged_file_is_made_again(example_copy: Path, folder: Path, read: list[Path], content: bytes):
    first = labels_and_gaps(example_copy)
    for path in folder.iterdir():
        path.write_bytes(content)
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read
    del read[:]
    assert labels_and_gaps(example_copy) == first
    assert read == []


def test_nothing_is_kept_where_nothing_may_be(example_copy: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAULTSET_LABELS_BYTES", "0")
    labels_and_gaps(example_copy)
    assert not folder.exists()
    monkeypatch.setenv("FAULTSET_LABELS_BYTES", "much")
    with pytest.raises(UsageError, match="must be a number of bytes"):
        labels_and_gaps(example_copy)


def test_methods_cannot_read_them(example_copy: Path, folder: Path):
    source = DatasetSource.of(open_dataset(example_copy))
    plan = make_plan(EvaluationScope(source=source, settings=EvaluationSettings()), [get_baseline("max-z")], 1)
    assert str(folder) in plan.context.hidden


EVALUATE = "from faultset.evaluators.cli.evaluate import evaluate; evaluate()"


OPTIONS = ["--baselines", "ksigma,max-z", "--workers", "1"]


def can_mount(folder: Path) -> bool:
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def in_small_file_system(
    folder: Path, kib: int, *commands: list[str], full: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run commands one after the other where a folder is a file system of a size, in a mount namespace of their own.

    What lies in the folder after the last one is listed on standard output.
    """
    if not can_mount(folder):
        pytest.skip("file systems cannot be mounted here: that needs root and the right to make mount namespaces")
    script = f"mount -t tmpfs -o size={kib}k tmpfs {shlex.quote(str(folder))} || exit 99\n"
    if full:
        script += f"head -c {kib << 10} /dev/zero > {shlex.quote(str(folder / 'filler'))} 2>/dev/null\n"
    script += "code=0\n" + "".join(f"{shlex.join(command)} || code=$?\n" for command in commands)
    script += f"find {shlex.quote(str(folder))} -type f -printf 'LEFT %P %s\\n'; exit $code"
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=900
    )


def left(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Return the files that were left, and their sizes."""
    words = (line.split() for line in done.stdout.splitlines() if line.startswith("LEFT "))
    return {name: int(size) for _, name, size in words}


def evaluate(dataset: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-c", EVALUATE, str(dataset), "--out", str(out), *OPTIONS, *more]


def assert_one_sentence(done: subprocess.CompletedProcess[str]) -> None:
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert done.returncode in (2, 3, 4), done.stderr
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "space" in errors[0], errors


@pytest.mark.slow
@pytest.mark.parametrize(("kib", "full"), [(64, True), (4, False), (40, False), (60, False)])
def test_a_full_disk_is_one_sentence(kib: int, full: bool, example_dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    done = in_small_file_system(folder, kib, evaluate(example_dataset, folder / "out"), full=full)
    assert_one_sentence(done)
    assert not [name for name in left(done) if name.endswith((".tmp", "index.html", "report.html"))]


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--baselines", "ksigma,max-z,baro,nsigma,spot"], ["--fresh"]])
def test_results_that_were_there_stay_whole_when_the_disk_is_full(
    more: list[str], example_dataset: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    fill = ["sh", "-c", f"cat /dev/zero > {shlex.quote(str(folder / 'filler'))} 2>/dev/null; true"]
    table = folder / "out" / "results.parquet"
    done = in_small_file_system(
        folder,
        2048,
        evaluate(example_dataset, folder / "out"),
        ["sh", "-c", f"sha256sum {shlex.quote(str(table))} | cut -c1-64"],
        fill,
        evaluate(example_dataset, folder / "out", *more),
        ["sh", "-c", f"sha256sum {shlex.quote(str(table))} | cut -c1-64"],
    )
    assert_one_sentence(done)
    before, after = (line for line in done.stdout.splitlines() if re.fullmatch(r"[0-9a-f]{64}", line))
    assert before == after
