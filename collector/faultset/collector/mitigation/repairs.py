"""Built-in repairs of a fault: commands, or the undo of the injection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from faultset.collector.mitigation.commands import check_line
from faultset.collector.mitigation.messages import MitigatorOrder, RepairOrder
from faultset.collector.platforms.hosts import Phases
from faultset.core.errors import UsageError, unknown_name
from faultset.core.regular_files import read_regular
from faultset.datasets.kubectl.commands import CommandError

LARGEST_FILE_BYTES = 2**20
TRUE_UNDO = "true-undo"
COMMANDS = "commands"
"""Name of the repair with commands from a file."""
OPERATOR = "operator"
"""Name of the repair by an external program, and of its plug-in in the group `faultset.mitigators`."""
_OPERATOR_SECONDS = 3600.0

_COMMANDS_OF: dict[str, Callable[[str], tuple[str, ...]]] = {
    "do-nothing": lambda target: (),
    "restart-target": lambda target: (f"kubectl rollout restart deployment/{target}",),
    "restart-everything": lambda target: ("kubectl rollout restart deployment",),
    TRUE_UNDO: lambda target: (),
}
REPAIRS = tuple(_COMMANDS_OF)
"""Names of the controls, which run in addition to every other repair."""


def build_repair_order(name: str, target: str, **limits: float) -> RepairOrder:
    """Return the order for one of `REPAIRS`; raise UsageError for an unknown name or an invalid time limit."""
    if name not in _COMMANDS_OF:
        raise unknown_name("repair", name, REPAIRS)
    order = RepairOrder(name=name, commands=_COMMANDS_OF[name](target), undoes=name == TRUE_UNDO)
    return _set_time_limits(order, limits)


def build_commands_order(file: Path, **limits: float) -> RepairOrder:
    """Return the repair that executes the commands in a file; raise UsageError for an invalid line."""
    order = _set_time_limits(RepairOrder(name=COMMANDS, folder=file.absolute().parent), limits)
    lines = read_command_lines(file)
    for number, line in lines:
        try:
            check_line(line)
        except CommandError as error:
            raise UsageError(f"{file}, line {number}: {error}") from None
    return replace(order, commands=tuple(line for _, line in lines))


def build_operator_order(socket: Path, **limits: float) -> RepairOrder:
    """Return the repair that a program on a Unix socket carries out; raise UsageError if there is no socket."""
    work = MitigatorOrder(mitigator=OPERATOR, settings={"socket": str(socket.absolute())}, seconds=_OPERATOR_SECONDS)
    order = _set_time_limits(RepairOrder(name=OPERATOR, mitigator=work), limits)
    if not socket.is_socket():
        raise UsageError(
            f"--operator must be the Unix socket of a listening program, but {socket} is not a socket; start the "
            "program first"
        )
    return order


def _set_time_limits(order: RepairOrder, limits: Mapping[str, float]) -> RepairOrder:
    """Return the order with its time limits; raise UsageError if one is out of range."""
    order = replace(order, **limits)
    if not 2.0 <= order.sustain_s <= order.within_s <= 3600.0:
        raise UsageError(
            "the application must stay healthy for at least 2 s (--sustain) within at most an hour (--within), got "
            f"{order.sustain_s:g} s within {order.within_s:g} s; change them"
        )
    return order


def read_command_lines(path: Path) -> list[tuple[int, str]]:
    """Return the commands in a file, each with the number of its line.

    Empty lines and lines that start with `#` are ignored; a backslash at the end of a line continues it. Raises
    UsageError if the file cannot be read or has no command.
    """
    text = _read_text(path)
    commands: list[tuple[int, str]] = []
    unfinished, first_number = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not unfinished and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first_number = first_number or number
        if line.endswith("\\"):
            unfinished += line[:-1] + " "
            continue
        commands.append((first_number, (unfinished + line).strip()))
        unfinished, first_number = "", 0
    if unfinished:
        raise UsageError(f"{path}, line {first_number}: the command ends with a backslash; write the rest of it")
    if not commands:
        raise UsageError(
            f"{path} has no command; write one per line, for instance: kubectl rollout restart deployment/geo"
        )
    return commands


def _read_text(path: Path) -> str:
    try:
        return read_regular(path, limit_bytes=LARGEST_FILE_BYTES, error=UsageError).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path} must be text in UTF-8; save it in that encoding") from None


MITIGATION_PHASES = Phases(warmup_s=8.0, baseline_s=20.0, fault_s=60.0, cooldown_s=1.0)
"""A short reference, and time for a slow fault to take effect; the repair begins as soon as clients are affected."""
