from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from faultset.core.command_line import progress
from faultset.core.command_line.console import command, is_quiet, set_verbosity


@pytest.fixture(autouse=True)
def default_verbosity() -> Iterator[None]:
    yield
    set_verbosity()


def run(*arguments: str) -> tuple[Result, list[int]]:
    """Run a command that shows progress; return also the level of logging in it."""
    levels: list[int] = []

    @command("sample")
    def sample() -> None:
        levels.append(logging.getLogger("faultset.sample").getEffectiveLevel())
        with progress.shown(1, "steps") as advance:
            advance(1)

    return CliRunner().invoke(sample, arguments), levels


@pytest.mark.parametrize(
    ("arguments", "level"),
    [((), logging.WARNING), (("-v",), logging.INFO), (("-vv",), logging.DEBUG), (("-q",), logging.ERROR)],
)
def test_the_options_set_the_level_of_logging(arguments: tuple[str, ...], level: int) -> None:
    result, levels = run(*arguments)
    assert result.exit_code == 0
    assert levels == [level]


def test_quiet_hides_progress() -> None:
    assert "steps 1/1" in run()[0].stderr
    assert run("-q")[0].stderr == ""
    assert is_quiet()


def test_both_at_once_are_wrong_usage() -> None:
    result, levels = run("-v", "-q")
    assert result.exit_code == 2
    assert "either -v or -q" in result.stderr
    assert not levels
