"""Messages about a repair: the order and the result. Must import fast, because every episode imports this module."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from faultset.collector.ipc.channel import Message

Part = Literal["fault", "requests", "objects", "presence"]
"""A check of the judge."""
MAX_OUTPUT_CHARACTERS = 20_000
"""Maximum number of characters of a command's output that are stored."""
CommandStatus = Literal["done", "refused", "failed"]
"""See `CommandResult.status`."""


@dataclass(frozen=True, kw_only=True)
class MitigatorOrder(Message):
    """The mitigator to run, a plug-in of the group `faultset.mitigators`.

    Attributes
    ----------
    mitigator
        Name of the plug-in.
    settings
        Its settings, without secrets.
    seconds
        Time limit.
    """

    mitigator: str
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 900.0


@dataclass(frozen=True, kw_only=True)
class RepairOrder(Message):
    """A repair and its time limits.

    Attributes
    ----------
    commands
        kubectl commands, one per line.
    folder
        Folder with the files of `kubectl apply -f`.
    undoes
        Whether to undo the injection; this must repair every fault.
    mitigator
        The mitigator to run; None for commands.
    within_s
        Seconds within which the application must become healthy, from the start of the repair, or from the end of a
        mitigator's work.
    sustain_s
        Seconds for which it must stay healthy.
    """

    name: str
    commands: tuple[str, ...] = ()
    folder: Path | None = None
    undoes: bool = False
    mitigator: MitigatorOrder | None = None
    within_s: float = 90.0
    sustain_s: float = 10.0


@dataclass(frozen=True, kw_only=True)
class CommandResult(Message):
    """The result of a command.

    Attributes
    ----------
    line
        The command.
    status
        `done`; `refused` if it is not allowed and nothing was done; `failed` if the platform returned an error.
    output
        kubectl's output, truncated to its last 20,000 characters.
    resolved
        Names of missing pods, with the current pods of the same owners that were used instead.
    """

    line: str
    status: CommandStatus
    output: str
    took_s: float
    resolved: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RepairCheckResult(Message):
    """The result of one check of the judge: `ok`, or the remaining problem."""

    part: Part
    ok: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class MitigationResult(Message):
    """The result of a repair.

    Attributes
    ----------
    repair
        Name of the repair.
    success
        Whether all checks of the judge passed in time and for long enough.
    parts
        The last results of the checks.
    commands
        Result of each command.
    manifest
        Whether the fault affected client requests before the repair started.
    mitigated_s
        Time to mitigate (TTM), from the injection until the application became and stayed healthy; None without
        success.
    repair_s
        Time from the start of the repair until the same moment.
    mitigator
        The mitigator's record of its work; None for commands.
    after
        Earlier repairs that failed on the same live fault.
    """

    repair: str
    success: bool
    parts: tuple[RepairCheckResult, ...]
    commands: tuple[CommandResult, ...]
    manifest: bool
    mitigated_s: float | None
    repair_s: float | None
    mitigator: dict[str, Any] | None = None
    after: tuple[str, ...] = ()
