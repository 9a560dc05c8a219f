from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest

from faultset.core.command_line.console import complete_names


def complete(text: str) -> list[str]:
    option = click.Option(["--faults"])
    return complete_names("faultset.faults", "all")(click.Context(click.Command("x")), option, text)


def test_names_of_plugins_and_other_words_are_completed() -> None:
    assert complete("network-") == ["network-delay", "network-jitter", "network-loss", "network-partition"]
    assert complete("al") == ["all"]


def test_the_last_of_several_names_is_completed_and_none_is_offered_twice() -> None:
    assert complete("pod-kill,network-l") == ["pod-kill,network-loss"]
    assert complete("pod-kill,pod-") == ["pod-kill,pod-failure"]


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("collect", "collect --faults target-", "target-port"),
        ("collect", "collect --apps ho", "hotel"),
        ("evaluate", "evaluate --baselines mks", "mksmc"),
        ("faultset", "faultset evaluate --baselines rml", "rmlad"),
        ("faultset", "faultset dataset ver", "verify"),
    ],
)
def test_the_shell_completes_commands_and_names(script: str, words: str, expected: str) -> None:
    point = next(iter(entry_points(group="console_scripts", name=script)))
    program = f"import sys; from {point.module} import {point.attr}; sys.argv[0] = {script!r}; {point.attr}()"
    variables = {
        f"_{script.upper()}_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert f"plain,{expected}" in done.stdout.split("\n"), done.stderr
