"""Evaluations into file systems that are too small: one sentence, and what was there before stays whole."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize(("kib", "full"), [(64, True), (4, False), (40, False), (60, False)])
def test_a_full_disk_is_one_sentence(kib: int, full: bool, example_dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    done = in_small_file_system(folder, kib, evaluate(example_dataset, folder / "out"), full=full)
    assert_one_sentence(done)
    assert not [name for name in left(done) if name.endswith((".tmp", "index.html", "report.html"))]


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
