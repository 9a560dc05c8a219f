"""Why a command comes to nothing."""

from __future__ import annotations

from faultset.core.errors import UsageError


class CommandError(UsageError):
    """A command that cannot be understood; its text says why."""


class ShellSyntaxError(CommandError):
    """A command that only a shell could run; its text says why."""
