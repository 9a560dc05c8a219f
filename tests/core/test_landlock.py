"""A confined process reaches what it was given, and nothing else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faultset.core.landlock import confine, landlock_version

pytestmark = pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")


def refused(action: Callable[[], object], **given: list[Path]) -> bool:
    """Whether a confined child is refused an action."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            confine(**{"read": [], **given})
            action()
            code = 0
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 1


def test_files_that_were_not_given_cannot_be_read(tmp_path: Path):
    given, other = tmp_path / "given", tmp_path / "other"
    for path in (given, other):
        path.write_text("text")
    assert not refused(given.read_text, read=[given])
    assert refused(other.read_text, read=[given])
    assert refused(lambda: os.listdir(tmp_path), read=[given])


def test_what_may_be_read_cannot_be_written(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("text")
    assert refused(lambda: file.write_text("other"), read=[tmp_path])
    assert refused(file.unlink, read=[tmp_path])
    assert refused(lambda: (tmp_path / "new").mkdir(), read=[tmp_path])
    assert file.read_text() == "text"
    assert not refused(lambda: file.write_text("other"), read=[], write=[tmp_path])


def test_a_listed_folder_shows_names_and_no_content(tmp_path: Path):
    (tmp_path / "file").write_text("text")
    assert not refused(lambda: os.listdir(tmp_path), listed=[tmp_path])
    assert refused((tmp_path / "file").read_text, listed=[tmp_path])


def test_a_link_leads_nowhere_that_was_not_given(tmp_path: Path):
    (tmp_path / "secret").write_text("text")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "link").symlink_to(tmp_path / "secret")
    assert refused((tmp_path / "given" / "link").read_text, read=[tmp_path / "given"])


@pytest.mark.skipif(landlock_version() < 6, reason="the kernel cannot confine signals")
def test_processes_outside_cannot_be_signalled():
    assert refused(lambda: os.kill(os.getppid(), signal.SIGCONT))
    assert not refused(lambda: os.kill(os.getpid(), signal.SIGCONT))


def test_paths_that_do_not_exist_are_passed_over(tmp_path: Path):
    assert not refused(lambda: os.listdir(tmp_path), read=[tmp_path / "missing", tmp_path, Path(sys.prefix)])
