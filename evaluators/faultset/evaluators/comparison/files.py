"""The files of a comparison."""

from __future__ import annotations

from pathlib import Path

from faultset.core.errors import UsageError
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.html import page
from faultset.evaluators.comparison.records import Comparison


def write(comparison: Comparison, folder: Path) -> Path:
    """Write comparison.json, comparison.md and comparison.html into a folder, and return it.

    Raises
    ------
    UsageError
        The folder cannot be written.
    """
    texts = {"comparison.md": formats.markdown(comparison), "comparison.html": page(comparison)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        formats.write_json(comparison, folder / "comparison.json")
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror}); choose another --out") from error
    return folder
