"""The files of a comparison."""

from __future__ import annotations

from pathlib import Path

from faultset.core.files import replace_text
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.html import page
from faultset.evaluators.comparison.records import Comparison
from faultset.evaluators.results.output_folder import writing


def write(comparison: Comparison, folder: Path) -> Path:
    """Write comparison.json, comparison.md and comparison.html into a folder, and return it.

    Raises
    ------
    UsageError
        The folder cannot be written.
    DataError
        The disk is full.
    """
    texts = {"comparison.md": formats.markdown(comparison), "comparison.html": page(comparison)}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        formats.write_json(comparison, folder / "comparison.json")
        for name, text in texts.items():
            replace_text(folder / name, text, durable=False)
    return folder
