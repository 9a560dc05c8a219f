"""Command lines without a shell, and light imports."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import faultset.datasets.kubectl as package
from faultset.datasets.kubectl.commands import MAX_LINE, CommandError, ShellSyntaxError, split_line, tokens


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
    with pytest.raises(ShellSyntaxError, match="there is none"):
        split_line(line)


def test_an_open_quote_and_an_endless_line_are_refused() -> None:
    with pytest.raises(CommandError, match="a quote is not closed"):
        split_line("kubectl patch svc geo -p '{")
    with pytest.raises(CommandError, match="at most 20,000 characters"):
        split_line("k" * (MAX_LINE + 1))


def test_any_text_gives_words_or_one_sentence() -> None:
    rng = random.Random(7)
    alphabet = "ab \"'\\|;&<>()$`#\n\t\0\u2028\ud7ff-=/{}[],:"
    for _ in range(3000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(40)))
        with suppress(CommandError):
            assert all(isinstance(word, str) for word in split_line(text))


def test_an_operator_in_quotes_is_a_word() -> None:
    assert split_line("kubectl annotate svc geo '|' \";\" a\\&b") == [
        "kubectl",
        "annotate",
        "svc",
        "geo",
        "|",
        ";",
        "a&b",
    ]


def test_pipes_and_redirections_stand_apart_from_words() -> None:
    found = [token.text for token in tokens("kubectl get pods 2>/dev/null|grep 'a>b'") if token.is_operator]
    assert found == [">", "|"]


def test_a_substitution_is_data_in_single_quotes_only() -> None:
    assert split_line("kubectl label svc geo 'a=$(id)'")[-1] == "a=$(id)"
    with pytest.raises(ShellSyntaxError, match="there is none"):
        split_line('kubectl label svc geo "a=$(id)"')


def test_a_backslash_joins_lines_and_keeps_blanks() -> None:
    assert split_line("kubectl get \\\n pods a\\ b") == ["kubectl", "get", "pods", "a b"]


MODULES = [path.stem for path in Path(str(package.__file__)).parent.glob("*.py") if path.stem != "__init__"]


def test_no_module_brings_a_package_of_others() -> None:
    names = ", ".join(f"faultset.datasets.kubectl.{name}" for name in MODULES)
    heavy = "{'click', 'duckdb', 'numpy', 'pandas', 'pyarrow', 'pydantic', 'yaml'}"
    code = f"import sys, {names}; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.strip() == "[]"
