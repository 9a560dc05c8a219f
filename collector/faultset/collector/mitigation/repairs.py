"""Built-in repairs of a fault: commands, or the undo of the injection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from faultset.collector.mitigation.commands import check_line
from faultset.collector.mitigation.messages import MitigatorOrder, RepairOrder
from faultset.collector.platforms.hosts import Phases
from faultset.core.errors import UsageError
from faultset.core.reading.regular_files import read_regular
from faultset.core.suggestions import unknown_name
from faultset.datasets.kubectl.commands import CommandError

LARGEST_FILE_BYTES = 2**20
DO_NOTHING, RESTART_TARGET, RESTART_EVERYTHING, TRUE_UNDO = (
    "do-nothing",
    "restart-target",
    "restart-everything",
    "true-undo",
)
COMMANDS = "commands"
"""Name of the repair with commands from a file."""
OPERATOR = "operator"
"""Name of the repair by an external program, and of its plug-in in the group `faultset.mitigators`."""
_OPERATOR_SECONDS = 3600.0


_COMMANDS_OF: dict[str, Callable[[str], tuple[str, ...]]] = {
    DO_NOTHING: lambda target: (),
    RESTART_TARGET: lambda target: (f"kubectl rollout restart deployment/{target}",),
    RESTART_EVERYTHING: lambda target: ("kubectl rollout restart deployment",),
    TRUE_UNDO: lambda target: (),
}
REPAIRS = tuple(_COMMANDS_OF)
"""Names of the controls, which run next to every other repair."""


def repair_order(name: str, target: str, *, within_s: float = 90.0, sustain_s: float = 10.0) -> RepairOrder:
    """Return a repair of `REPAIRS` for a target.

    Raises
    ------
    UsageError
        The name is unknown, or a time limit is invalid.
    """
    if name not in _COMMANDS_OF:
        raise unknown_name("repair", name, REPAIRS)
    check_lengths(within_s, sustain_s)
    return RepairOrder(
        name=name,
        commands=_COMMANDS_OF[name](target),
        undoes=name == TRUE_UNDO,
        within_s=within_s,
        sustain_s=sustain_s,
    )


def commands_order(file: Path, *, within_s: float = 90.0, sustain_s: float = 10.0) -> RepairOrder:
    """Return the repair by the commands of a file.

    Raises
    ------
    UsageError
        The file cannot be read, or contains a line that is not a command; the message names the line.
    """
    check_lengths(within_s, sustain_s)
    lines = read_command_lines(file)
    for number, line in lines:
        try:
            check_line(line)
        except CommandError as error:
            raise UsageError(f"{file}, line {number}: {error}") from None
    return RepairOrder(
        name=COMMANDS,
        commands=tuple(line for _, line in lines),
        folder=file.absolute().parent,
        within_s=within_s,
        sustain_s=sustain_s,
    )


def operator_order(socket: Path, *, within_s: float = 90.0, sustain_s: float = 10.0) -> RepairOrder:
    """Return the repair by a program that listens on a Unix socket.

    Raises
    ------
    UsageError
        Nothing is at the path, or a length of time cannot be meant.
    """
    check_lengths(within_s, sustain_s)
    if not socket.is_socket():
        raise UsageError(f"--operator must be the Unix socket of a program that listens; {socket} is none")
    order = MitigatorOrder(mitigator=OPERATOR, settings={"socket": str(socket.absolute())}, seconds=_OPERATOR_SECONDS)
    return RepairOrder(name=OPERATOR, mitigator=order, within_s=within_s, sustain_s=sustain_s)


def check_lengths(within_s: float, sustain_s: float) -> None:
    """Raise UsageError when a repair cannot be judged in these times."""
    if not 2.0 <= sustain_s <= within_s <= 3600.0:
        raise UsageError(
            "a repair is judged within 2 s to an hour, and healthy for at least 2 s of it; "
            f"found {within_s:g} s and {sustain_s:g} s"
        )


def read_command_lines(path: Path) -> list[tuple[int, str]]:
    r"""Return the commands in a file, each with the number of its line.

    Empty lines and lines that start with `#` are ignored; a backslash at the end of a line continues it.

    Raises
    ------
    UsageError
        The file cannot be read, is too large, is not UTF-8, or has no command.
    """
    text = _text_of(path)
    made: list[tuple[int, str]] = []
    begun, number_of_first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        number_of_first = number_of_first or number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        made.append((number_of_first, (begun + line).strip()))
        begun, number_of_first = "", 0
    if begun:
        raise UsageError(f"{path}, line {number_of_first}: the command ends with a backslash; write the rest of it")
    if not made:
        raise UsageError(
            f"{path} has no command; write one a line, for instance: kubectl rollout restart deployment/geo"
        )
    return made


def _text_of(path: Path) -> str:
    try:
        return read_regular(path, limit_bytes=LARGEST_FILE_BYTES, error=UsageError).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} must be text in UTF-8; save it so") from None


MITIGATION_PHASES = Phases(warmup_s=8.0, baseline_s=20.0, fault_s=60.0, cooldown_s=1.0)
"""A short reference, and time for a slow fault to take effect; the repair begins as soon as clients have felt it."""
