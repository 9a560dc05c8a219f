"""What is sent about a repair: the order, and what came of it. Light to import, as every episode does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from faultset.collector.ipc.channel import Message

Part = Literal["fault", "requests", "objects", "presence"]
"""One of the oracle's questions."""
LARGEST_OUTPUT = 20_000
"""Most characters that are kept of a command's output."""
CommandStatus = Literal["done", "refused", "failed"]
"""`done`; `refused` when nothing was done because the command may not be given; `failed` when the platform said no."""


@dataclass(frozen=True, kw_only=True)
class MitigatorOrder(Message):
    """Who repairs by looking and acting, as a plug-in of the group `faultset.mitigators`.

    Attributes
    ----------
    mitigator
        Name of the plug-in.
    settings
        What it is told; holds no secrets.
    seconds
        Longest time that it may take.
    """

    mitigator: str
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 900.0


@dataclass(frozen=True, kw_only=True)
class RepairOrder(Message):
    """A repair, and how it is judged.

    Attributes
    ----------
    commands
        One command a line, as an operator would give them.
    folder
        Where files of `kubectl apply -f` lie.
    undoes
        Whether the injection is undone instead, which every fault must be repaired by.
    mitigator
        Who looks and acts by itself instead; None for commands.
    within_s
        How long after its begin, or the end of a mitigator's work, the application may take to become healthy.
    sustain_s
        How long it must be healthy without a break.
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
    """What came of a command.

    Attributes
    ----------
    line
        The command as it was given.
    status
        `done`; `refused` when it may not be given here and nothing was done; `failed` when the platform said no.
    output
        What kubectl would print, shortened to its last 20,000 characters.
    resolved
        Names of pods that are not there, with the present pods of the same owners that they were taken for.
    """

    line: str
    status: CommandStatus
    output: str
    took_s: float
    resolved: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OraclePartResult(Message):
    """What the oracle found of one part: `ok`, or what is still wrong."""

    part: Part
    ok: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class MitigationResult(Message):
    """What came of a repair.

    Attributes
    ----------
    repair
        Name of the repair.
    success
        Whether all parts of the oracle were satisfied for a sustained time, soon enough.
    parts
        The oracle's last answers.
    commands
        What each command did.
    manifest
        Whether client requests had felt the fault when the repair began.
    mitigated_s
        From the begin of the injection to the begin of the time in which the application stayed healthy (TTM);
        None without success.
    repair_s
        From the begin of the repair to the same instant.
    mitigator
        What the mitigator says of its work; None for commands.
    after
        Repairs that were tried in vain on the same live fault before; empty where this was the first.
    """

    repair: str
    success: bool
    parts: tuple[OraclePartResult, ...]
    commands: tuple[CommandResult, ...]
    manifest: bool
    mitigated_s: float | None
    repair_s: float | None
    mitigator: dict[str, Any] | None = None
    after: tuple[str, ...] = ()
