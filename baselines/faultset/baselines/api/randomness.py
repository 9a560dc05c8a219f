"""Random numbers for baselines."""

from __future__ import annotations

import zlib

import numpy as np


def episode_rng(seed: int, episode: str) -> np.random.Generator:
    """Random numbers that depend on seed and episode, not on which episode came before."""
    return np.random.default_rng([seed, zlib.crc32(episode.encode())])
