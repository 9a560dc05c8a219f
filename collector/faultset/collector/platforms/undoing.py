"""Replaying a journal: every open inverse, newest first, each noted as soon as it is done."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from faultset.collector.platforms.journal import Journal
from faultset.datasets.errors import PlatformError

logger = logging.getLogger(__name__)


class Performer(Protocol):
    """Who can perform one inverse act; doing it twice must do no harm."""

    def perform(self, inverse: Mapping[str, Any]) -> None:
        """Do it."""
        ...


def replay(journal: Journal, performer: Performer) -> None:
    """Perform all open inverses; one that fails does not keep the others from being tried.

    Raises
    ------
    PlatformError
        Some could not be performed; they stay open, and another replay tries them again.
    """
    failed: list[str] = []
    for seq, inverses in journal.open_inverses():
        try:
            for inverse in inverses:
                performer.perform(inverse)
        except PlatformError as error:
            failed.append(f"act {seq}: {error}")
            continue
        journal.undone(seq)
    if failed:
        raise PlatformError(f"{len(failed)} changes could not be undone ({failed[0]}); run 'faultset recover'")
