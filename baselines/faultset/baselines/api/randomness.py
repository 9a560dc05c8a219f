"""Random numbers for baselines."""

from __future__ import annotations

import zlib

import numpy as np


def episode_rng(seed: int, episode: str) -> np.random.Generator:
    """Return a generator that depends on seed and episode only, not on the order of episodes."""
    return np.random.default_rng([seed, zlib.crc32(episode.encode())])
