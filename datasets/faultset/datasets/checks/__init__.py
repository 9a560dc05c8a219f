"""Checks of a dataset: integrity, leaks of the answer, and predictability of faults from metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem in a dataset, or a limitation of a check."""

    severity: Severity
    """error: do not use the data; warning: examine it; note: a limitation of a check."""
    check: str
    """files, checksum, parquet, schema, rows, context, window, label, reference, telemetry, leak or chance."""
    episode: str | None
    """Id of the episode; None for findings about the version."""
    file: str | None
    """Path below the dataset folder; None for findings that concern several files."""
    message: str
    """Description in one sentence."""

    def __str__(self) -> str:
        subject = self.file or self.episode
        return f"{self.severity} {self.check}: {subject + ': ' if subject else ''}{self.message}"
