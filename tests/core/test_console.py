"""Every command's help fits a screen, shows an example and the defaults, and names options by one rule."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from faultset.core import console
from faultset.core.console import command, complete_names
from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
from faultset.core.output import is_quiet, set_verbosity, show_progress
from faultset.core.plugins import Plugin

HEAVY = ("pandas", "pyarrow", "dask", "distributed", "sklearn", "scipy", "kubernetes", "aiohttp", "matplotlib", "rich")


@pytest.fixture
def run():
    runner = CliRunner()
    return lambda *arguments, of=console.root: runner.invoke(of, [str(argument) for argument in arguments])


def failing(error: BaseException) -> click.Command:
    @console.command()
    def fails() -> None:
        """Fail."""
        raise error

    return fails


@pytest.mark.parametrize(("kind", "code"), [(UsageError, 2), (DataError, 3), (PlatformError, 4), (FaultsetError, 1)])
def test_our_errors_are_one_sentence_and_an_exit_code(run, kind, code):
    result = run(of=failing(kind("wanted this, found that; do this")))
    assert result.exit_code == code
    assert result.stderr == "Error: wanted this, found that; do this\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.EMFILE, errno.EIO]
)
def test_what_the_system_refuses_is_one_sentence_that_names_the_file(run, number):
    result = run(of=failing(OSError(number, os.strerror(number), "data/\x1b[2Jx")))
    assert result.exit_code == 3
    assert result.stderr.startswith(r"Error: data/\x1b[2Jx cannot be used (")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("error", [PermissionError(errno.EPERM, "no"), FileNotFoundError(errno.ENOENT, "no", "file")])
def test_a_refusal_without_a_file_and_a_missing_file_stay_bugs(run, error):
    assert run(of=failing(error)).exception is error


def test_too_little_memory_is_one_sentence(run):
    result = run(of=failing(MemoryError()))
    assert result.exit_code == 4
    assert result.stderr.startswith("Error: the memory of this machine or its limit (ulimit -v) is exhausted; ")


def test_an_interrupt_exits_130(run):
    result = run(of=failing(KeyboardInterrupt()))
    assert (result.exit_code, result.stderr) == (130, "Interrupted\n")


def test_a_bug_keeps_its_traceback(run):
    assert isinstance(run(of=failing(ValueError("bug"))).exception, ValueError)


@pytest.mark.parametrize("error", [DataError("x"), KeyboardInterrupt()])
def test_errors_of_commands_inside_groups_are_mapped_once(run, error):
    group = console.FaultsetGroup("outer", commands={"fails": failing(error)})
    result = run("fails", of=group)
    assert result.exit_code in (3, 130)
    assert result.stderr.count("\n") == 1


def test_wrong_usage_exits_2(run):
    assert run("--nope").exit_code == 2
    assert run("dataset", "show").exit_code == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["datset"], 'no such command "datset"; did you mean "dataset"?'),
        (["dataset", "shwo"], 'no such command "shwo"; did you mean "show"?'),
    ],
)
def test_an_unknown_command_gets_a_suggestion(run, words, sentence):
    result = run(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_every_registered_command_is_listed(run):
    names = {point.name for point in entry_points(group="faultset.commands")}
    top = run("--help").stdout
    for name in names:
        group, dot, rest = name.partition(".")
        assert f"  {group} " in top
        if dot:
            assert f"  {rest} " in run(group, "--help").stdout


def test_the_version_is_the_distributions(run):
    from importlib.metadata import version

    assert run("--version").stdout == f"faultset, version {version('faultset')}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["dataset", "--help"], ["dataset", "show", "--help"]])
def test_help_does_not_import_heavy_libraries(arguments):
    program = f"""
import sys
from faultset.core.console import root
root.main({arguments!r}, prog_name="faultset", standalone_mode=False)
heavy = set({HEAVY!r})
sys.exit(" ".join(sorted(heavy & sys.modules.keys())) or 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"--help imports {done.stderr}"
    assert "Usage: faultset" in done.stdout


def test_a_command_that_cannot_be_imported_leaves_the_help_alone(run, monkeypatch):
    value = "no_such_module:command"
    broken = Plugin(group=console.ENTRY_POINTS, name="broken", value=value, distribution="bad 1.2")
    monkeypatch.setattr(console, "plugins", lambda group: {"broken": broken})
    result = run("--help")
    assert result.exit_code == 0
    assert "broken  (cannot be loaded)" in result.stdout
    result = run("broken")
    assert result.exit_code == 2
    assert 'the plug-in "broken" of bad 1.2' in result.stderr
    assert "No module named 'no_such_module'" in result.stderr


@pytest.mark.parametrize("name", ["collect", "evaluate"])
def test_the_short_scripts_are_the_commands_of_their_name(name, capsys, monkeypatch):
    [script] = entry_points(group="console_scripts", name=name)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as caught:
        script.load()()
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"Usage: {name} ")


@pytest.fixture
def full_disk(tmp_path):
    """A file that takes no byte."""
    device = Path("/dev/full")
    try:
        if not device.is_char_device():
            device = tmp_path / "full"
            os.mknod(device, 0o20666, os.makedev(1, 7))
        file = device.open("w")
    except PermissionError:
        pytest.skip("there is no /dev/full, and this user may not make such a device")
    with file:
        yield file


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["dataset", "--help"], ["dataset", "show", "--help"], ["list", "faults"]]
)
def test_output_that_does_not_fit_is_one_sentence(words, full_disk):
    program = f"import sys; sys.argv = ['faultset', *{words!r}]; from faultset.core.start import faultset; faultset()"
    done = subprocess.run([sys.executable, "-c", program], stdout=full_disk, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert done.stderr == "Error: no space left on the output disk; free some space, then run again\n"


def test_without_standard_error_the_exit_code_says_it(full_disk):
    program = (
        "import sys; sys.argv = ['faultset', 'list', 'faults']; from faultset.core.start import faultset; faultset()"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=full_disk, stderr=full_disk).returncode == 3


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_do_not_change_the_exit_code(closed):
    words = ["faultset", "dataset", "verify", "/none"]
    program = f"import sys; sys.argv = {words!r}; from faultset.core.start import faultset; faultset()"
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("of", ["argument", "option"])
def test_a_name_that_is_not_utf8_is_one_sentence(run, of, tmp_path):
    name = os.fsdecode(b"data-\xff")
    (tmp_path / name).mkdir()
    words = ["verify", tmp_path / name] if of == "argument" else ["verify", ".", "--version", name]
    result = run("dataset", *words)
    assert result.exit_code == 2
    assert "must be UTF-8 text; rename the file or folder" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45.0), ("2m", 120.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0), ("0s", 0.0), (7, 7.0)],
)
def test_durations_have_units(text, seconds):
    assert console.DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "45", "s", "-3s", "2 m x", "1d", "3s4"])
def test_a_duration_without_a_unit_is_refused_with_an_example(text):
    with pytest.raises(click.BadParameter, match=r"for instance 45s or 2m"):
        console.DURATION.convert(text, None, None)


def test_a_missing_extra_is_one_sentence_that_names_it(run):
    result = run(of=failing(ModuleNotFoundError("No module named 'networkx'", name="networkx")))
    assert result.exit_code == 2
    assert result.stderr == (
        'Error: this needs the extra "evaluate"; '
        "run: pip install 'faultset[evaluate]', or in a clone pip install '.[evaluate]'\n"
    )


def test_another_missing_module_is_a_bug(run):
    error = ModuleNotFoundError("No module named 'nothing_of_ours'", name="nothing_of_ours")
    assert run(of=failing(error)).exception is error


def test_a_terminal_that_lacks_a_character_shows_its_code():
    code = "from faultset.core.console import command\n" + (
        "@command('show')\ndef show():\n    print('a \\u2192 b')\nshow.main([])"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a \\u2192 b\n"), done.stderr


@pytest.mark.parametrize("place", ["pipe", "link to a pipe", "loop", "folder", "below a file", "in a folder not there"])
def test_a_file_to_write_is_checked_before_anything_is_done(place, tmp_path):
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to a pipe").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    path = {"below a file": "file/x", "in a folder not there": "nothing/x"}.get(place, place)
    with pytest.raises(click.BadParameter) as caught:
        console.OUTPUT_FILE.convert(str(tmp_path / path), None, None)
    assert "\n" not in caught.value.message


def test_a_link_that_a_user_names_leads_to_the_file_that_is_written(tmp_path):
    (tmp_path / "link").symlink_to("page.html")
    assert console.OUTPUT_FILE.convert(str(tmp_path / "link"), None, None) == tmp_path / "page.html"
    assert console.OUTPUT_FILE.convert("new.html", None, None) == Path("new.html")


def test_names_are_joined_by_commas_or_given_one_by_one_and_kept_once():
    assert console.comma_separated("a,b", "c, a") == ("a", "b", "c")
    assert console.comma_separated(None, "", " , ") == ()


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


@pytest.fixture(autouse=True)
def default_verbosity() -> Iterator[None]:
    yield
    set_verbosity()


def verbosity_run(*arguments: str) -> tuple[Result, list[int]]:
    """Run a command that shows progress; return also the level of logging in it."""
    levels: list[int] = []

    @command("sample")
    def sample() -> None:
        levels.append(logging.getLogger("faultset.sample").getEffectiveLevel())
        with show_progress(1, "steps") as advance:
            advance(1)

    return CliRunner().invoke(sample, arguments), levels


@pytest.mark.parametrize(
    ("arguments", "level"),
    [((), logging.WARNING), (("-v",), logging.INFO), (("-vv",), logging.DEBUG), (("-q",), logging.ERROR)],
)
def test_the_options_set_the_level_of_logging(arguments: tuple[str, ...], level: int) -> None:
    result, levels = verbosity_run(*arguments)
    assert result.exit_code == 0
    assert levels == [level]


def test_quiet_hides_progress() -> None:
    assert "steps 1/1" in verbosity_run()[0].stderr
    assert verbosity_run("-q")[0].stderr == ""
    assert is_quiet()


def test_both_at_once_are_wrong_usage() -> None:
    result, levels = verbosity_run("-v", "-q")
    assert result.exit_code == 2
    assert "-v and -q are mutually exclusive" in result.stderr
    assert not levels


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
