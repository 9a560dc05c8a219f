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
    """The mitigator to run, a plug-in of the group `faultset.mitigators`."""

    mitigator: str
    """Name of the plug-in."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its settings, without secrets."""
    seconds: float = 900.0
    """Time limit."""


@dataclass(frozen=True, kw_only=True)
class RepairOrder(Message):
    """A repair and its time limits."""

    name: str
    commands: tuple[str, ...] = ()
    """kubectl commands, one per line."""
    folder: Path | None = None
    """Folder with the files of `kubectl apply -f`."""
    undoes: bool = False
    """Whether to undo the injection; this must repair every fault."""
    mitigator: MitigatorOrder | None = None
    """The mitigator to run; None for commands."""
    within_s: float = 90.0
    """Seconds within which the application must become healthy, from the start of the repair, or from the end of a
    mitigator's work.
    """
    sustain_s: float = 10.0
    """Seconds for which it must stay healthy."""


@dataclass(frozen=True, kw_only=True)
class CommandResult(Message):
    """The result of a command."""

    line: str
    """The command."""
    status: CommandStatus
    """`done`; `refused` if it is not allowed and nothing was done; `failed` if the platform returned an error."""
    output: str
    """kubectl's output, truncated to its last 20,000 characters."""
    took_s: float
    resolved: dict[str, str] = field(default_factory=dict)
    """Names of missing pods, with the current pods of the same owners that were used instead."""


@dataclass(frozen=True, kw_only=True)
class RepairCheckResult(Message):
    """The result of one check of the judge: `ok`, or the remaining problem."""

    part: Part
    ok: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class MitigationResult(Message):
    """The result of a repair."""

    repair: str
    """Name of the repair."""
    success: bool
    """Whether all checks of the judge passed in time and for long enough."""
    parts: tuple[RepairCheckResult, ...]
    """The last results of the checks."""
    commands: tuple[CommandResult, ...]
    """Result of each command."""
    manifest: bool
    """Whether the fault affected client requests before the repair started."""
    mitigated_s: float | None
    """Time to mitigate (TTM), from the injection until the application became and stayed healthy; None without success.
    """
    repair_s: float | None
    """Time from the start of the repair until the same moment."""
    mitigator: dict[str, Any] | None = None
    """The mitigator's record of its work; None for commands."""
    after: tuple[str, ...] = ()
    """Earlier repairs that failed on the same live fault."""
