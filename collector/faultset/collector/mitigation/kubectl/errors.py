"""How a command ends that does nothing."""

from __future__ import annotations

from faultset.core.errors import UsageError


class CommandRefused(UsageError):
    """The command is none that may be given here: unknown, misspelt, for a shell, or outside the application."""
