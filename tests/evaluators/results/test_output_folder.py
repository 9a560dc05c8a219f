"""Results are whole or absent, and what cannot be written is one sentence."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.cli.evaluate import evaluate
from faultset.evaluators.evaluation import FILES, Evaluation
from faultset.evaluators.evaluation_call import results_folder
from faultset.evaluators.execution.checkpoint import Checkpoint
from faultset.evaluators.leaderboards.formats import markdown
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.terminal import show
from faultset.evaluators.results.output_folder import check_writable, writing


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the kernel refuse larger files of this process, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", ["file/results", "x" * 300, "a/../file/b"])
def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, name: str):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"results cannot be written to .*; choose another --out"):
        check_writable(tmp_path / name)


@pytest.mark.parametrize("folder", ["/proc/results", "/proc/self/results", "/sys/results", "/dev/null/results", "a\0b"])
def test_a_place_of_the_system_is_refused(folder: str):
    with pytest.raises(UsageError, match="results cannot be written to"):
        check_writable(Path(folder))


def test_a_full_disk_is_noticed_before_any_method_runs(tmp_path: Path):
    with files_of_at_most(100), pytest.raises(DataError, match="no space left on the disk of"):
        check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_evaluations_that_try_one_folder_at_once_do_not_disturb_each_other(tmp_path: Path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(check_writable, [tmp_path / "new"] * 400))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_disk_that_fills_up_leaves_whole_results_or_the_earlier_ones(make, tmp_path: Path):
    rows = [make.detection(make.truth(f"e{i}"), range(65, 101)) for i in range(4)]
    earlier = Evaluation(rows=tuple(rows[:2]), digest="earlier")
    earlier.write(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    for size in (4096, 8192, 16384):
        with files_of_at_most(size), pytest.raises(DataError, match="no space left"):
            Evaluation(rows=tuple(rows), digest="later").write(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == set(FILES)
        for name in FILES:
            content = (tmp_path / name).read_bytes()
            assert content == before[name] or len(content) <= size, "whole: nothing larger could be written"


def test_a_checkpoint_on_a_full_disk_is_one_sentence(make, tmp_path: Path):
    rows = [make.detection(make.truth(f"e{i}"), range(65, 101)) for i in range(40)]
    with Checkpoint(tmp_path, {}) as checkpoint:
        checkpoint.begin({})
        with files_of_at_most(2000), pytest.raises(DataError, match="no space left"), writing(tmp_path):
            checkpoint.add(rows)


def test_results_do_not_go_through_links_that_came_with_the_data(make, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    for name in FILES:
        os.symlink(victim, folder / name)
    Evaluation(rows=(make.row(make.truth()),)).write(folder)
    assert victim.read_text() == "mine"
    assert not any((folder / name).is_symlink() for name in FILES)


@pytest.mark.parametrize("name", ["results", "results/data"])
def test_a_link_where_results_belong_is_refused(tmp_path: Path, name: str):
    (tmp_path / "data").mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.symlink(tmp_path, tmp_path / name)
    with pytest.raises(UsageError, match="is a link; remove it, or choose the results folder"):
        results_folder(str(tmp_path / "data"))


def test_names_are_neither_markup_nor_terminal_commands(make):
    from rich.console import Console

    evil = 'x<svg onload="alert(1)">|\x1b[2J\x1b]0;title\x07'
    rows = [make.row(make.truth("e1", app=evil, fault=evil), evil, ranking={"b": 1.0}, reason=evil, status="error")]
    board = build_leaderboard(rows)
    text = markdown(board)
    assert "<svg" not in text
    assert "&lt;svg" in text
    assert "\x1b" not in text
    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        show(board, console)
    assert "\x1b" not in console.export_text()
    assert "\x07" not in console.export_text()


def test_two_datasets_in_one_folder_keep_their_results_apart(example_dataset: Path, tmp_path: Path):
    import shutil

    for name in ("one", "two"):
        shutil.copytree(example_dataset, tmp_path / name)
        done = CliRunner().invoke(evaluate, [str(tmp_path / name), "--baselines", "always-yes", "--workers", "1"])
        assert done.exit_code == 0, done.output
    for name in ("one", "two"):
        assert name in (tmp_path / "results" / name / "leaderboard.md").read_text()
