"""The registration of detectors that train a network."""

from __future__ import annotations

import functools

from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import SAMPLE
from faultset.baselines.neural.extra import EXTRA

neural_detector = functools.partial(
    baseline,
    task="detection",
    stochastic=True,
    speed="fast",
    learns_from_references=True,
    developed_on=(SAMPLE,),
    extra=EXTRA,
)
"""`baseline` with what holds for every detector that trains a network on healthy telemetry of other episodes."""
