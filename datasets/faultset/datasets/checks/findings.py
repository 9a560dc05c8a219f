"""What a check of a dataset has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with a dataset, or worth knowing about a check."""

    severity: Severity
    """error: do not use the data as it is; warning: look at it; note: how far a check could go."""
    check: str
    """files, checksum, parquet, schema, rows, context, window, label, reference, telemetry, leak or chance."""
    episode: str | None
    """Id of the episode; None where it is about the version."""
    file: str | None
    """Path below the dataset folder; None where it is about no single file."""
    message: str
    """What is wrong, in one sentence."""

    def __str__(self) -> str:
        place = self.file or self.episode
        return f"{self.severity} {self.check}: {place + ': ' if place else ''}{self.message}"
