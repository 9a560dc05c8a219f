from __future__ import annotations

from pathlib import Path

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
FAULTY = "a5edb68659bc"
"""The pods of geo fail."""
