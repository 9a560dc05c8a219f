"""The width of what is printed: that of the terminal, and a readable one in files and pipes."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPED_COLUMNS = 120


def text_console() -> Console:
    """Return a console for stdout."""
    from rich.console import Console

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if known else PIPED_COLUMNS)


def wrapped(text: str) -> str:
    """Break a long line between words."""
    columns = shutil.get_terminal_size((PIPED_COLUMNS, 24)).columns
    return textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)
