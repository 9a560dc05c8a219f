"""How strongly faults act: drawn evenly on a logarithmic scale, so that weak faults are no rarer than strong."""

from __future__ import annotations

import math

import numpy as np


def drawn_between(rng: np.random.Generator, least: float, most: float, *, digits: int = 3) -> float:
    """Return a number between two positive ones, of which half lie below their geometric mean."""
    return round(math.exp(rng.uniform(math.log(least), math.log(most))), digits)
