"""How a command ends that does nothing."""

from __future__ import annotations

from faultset.datasets.kubectl.errors import CommandError


class CommandRefused(CommandError):
    """The command is none that may be given here, because it does not fit, or is outside the application."""
