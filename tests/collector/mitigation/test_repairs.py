"""Files of commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faultset.collector.mitigation.repairs import read_command_lines
from faultset.core.errors import UsageError


def test_a_file_has_one_command_a_line_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "repair.txt"
    path.write_text("# first look\n\nkubectl get pods\nkubectl patch svc geo \\\n  -p '{}'\n")
    assert read_command_lines(path) == [(3, "kubectl get pods"), (4, "kubectl patch svc geo    -p '{}'")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no command"),
        (b"# nothing\n", "has no command"),
        (b"kubectl get \\\n", "line 1: the command ends with a backslash"),
        (b"\xff\xfe", "must be text in UTF-8"),
        (b"x" * 2_000_000, "must have at most"),
    ],
)
def test_a_file_without_commands_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "repair.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        read_command_lines(path)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="must be a regular file, but is a named pipe"):
        read_command_lines(tmp_path / "pipe")
