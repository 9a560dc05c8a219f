"""Every command's help fits a screen, shows an example and the defaults, and names options by one rule."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from faultset.core.command_line import console

SCREEN = (80, 40)
NOT_NOUNS = {"--fail-on", "--no-fault"}
"""Options with several values whose names have no plural."""


def commands(group: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command, f"{path} {name}")


COMMANDS = dict(commands(console.root, "faultset"))


def shown_help(path: str) -> str:
    width = SCREEN[0]
    context = click.Context(COMMANDS[path], info_name=path, max_content_width=width, terminal_width=width)
    return COMMANDS[path].get_help(context)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_fits_one_screen_with_an_example(path: str) -> None:
    lines = shown_help(path).splitlines()
    assert len(lines) <= SCREEN[1]
    assert any(line.strip() in ("Example:", "Examples:") for line in lines)


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_shows_every_default(path: str) -> None:
    command = COMMANDS[path]
    context = click.Context(command, info_name=path, show_default=True)
    options = [option for option in command.params if isinstance(option, click.Option) and not option.is_flag]
    for option in options:
        if option.to_info_dict()["default"] not in (None, ()) and not option.count:
            record = option.get_help_record(context)
            assert record is not None
            assert "[default: " in record[1], option.opts


@pytest.mark.parametrize("path", COMMANDS)
def test_options_with_several_values_have_plural_names(path: str) -> None:
    options = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    several = {option.opts[-1] for option in options if option.multiple}
    assert not {flag for flag in several - NOT_NOUNS if not flag.endswith("s")}


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if getattr(command, "_more", None)])
def test_help_all_describes_every_option(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        COMMANDS[path].main(["--help-all"])
    screen = capsys.readouterr().out
    missing = [option.opts[-1] for option in COMMANDS[path].params if f"{option.opts[-1]} " not in screen]
    assert not [flag for flag in missing if flag.startswith("--")]


@pytest.fixture
def grouped() -> click.Command:
    @console.command(groups={"Input": "--file"}, more={"Tuning": "--depth"})
    @click.option("--depth", default=3, help="Depth of the search.")
    @click.option("--file", help="File to read.")
    def search(file: str, depth: int) -> None:
        """Search."""

    return search


def test_long_helps_list_less_common_options_and_describe_them_on_request(
    grouped: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        grouped.main(["--help"])
    short = capsys.readouterr().out
    assert "Input:\n  --file TEXT  File to read." in short
    assert "  Tuning   --depth\n  General  --verbose, --quiet, --help-all, --help\n" in short
    assert "Depth of the search" not in short
    with pytest.raises(SystemExit):
        grouped.main(["--help-all"])
    everything = capsys.readouterr().out
    assert "Tuning:\n  --depth INTEGER  Depth of the search.  [default: 3]" in everything
    assert "General:\n" in everything
