"""Lines of commands: words without a shell, and files of them."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from faultset.collector.mitigation.kubectl.command_lines import LARGEST_LINE, read_command_lines, split_line
from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.core.errors import UsageError


def test_quotes_keep_words_together_and_keep_what_a_shell_would_read() -> None:
    line = """kubectl exec geo-1 -- echo "a | b; c" 'x > y' z\\ z"""
    assert split_line(line) == ["kubectl", "exec", "geo-1", "--", "echo", "a | b; c", "x > y", "z z"]


@pytest.mark.parametrize(
    "line",
    [
        "kubectl get pods | grep geo",
        "kubectl get pods; rm -rf x",
        "kubectl get pods && true",
        "kubectl get pods > file",
        "kubectl get pods >> file",
        "kubectl apply -f - <<EOF",
        "kubectl delete pod $(kubectl get pods)",
        "kubectl delete pod `whoami`",
        "kubectl get pods &",
        "(kubectl get pods)",
    ],
)
def test_what_only_a_shell_understands_is_refused(line: str) -> None:
    with pytest.raises(CommandRefused, match=r"there is none|a quote"):
        split_line(line)


def test_an_open_quote_and_an_endless_line_are_refused() -> None:
    with pytest.raises(CommandRefused, match="a quote is not closed"):
        split_line("kubectl patch svc geo -p '{")
    with pytest.raises(CommandRefused, match="at most 20,000 characters"):
        split_line("k" * (LARGEST_LINE + 1))


def test_any_text_gives_words_or_one_sentence() -> None:
    rng = random.Random(7)
    alphabet = "ab \"'\\|;&<>()$`#\n\t\0\u2028\ud7ff-=/{}[],:"
    for _ in range(3000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(40)))
        with suppress(CommandRefused):
            assert all(isinstance(word, str) for word in split_line(text))


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
        (b"x" * 2_000_000, "wanted are at most"),
    ],
)
def test_a_file_without_commands_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "repair.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        read_command_lines(path)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is a named pipe, wanted is a regular file"):
        read_command_lines(tmp_path / "pipe")
