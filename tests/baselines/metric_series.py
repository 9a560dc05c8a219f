"""Series of a small application with one fault, and localizers' answers to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from faultset.baselines import registry
from faultset.baselines.contract import Ranking
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000
ROLES = {"load": "traffic", "work": "cpu", "heap": "memory", "delay": "latency", "faults": "errors"}
SERVICES = ("front", "cart", "user", "db", "cache", "mail")
CALLS = (("front", "cart"), ("front", "user"), ("front", "mail"), ("cart", "cache"), ("cart", "db"), ("user", "db"))
Series = Mapping[tuple[str, str], np.ndarray]
World = Callable[..., EpisodeView]


def healthy_series(seed: int = 0, seconds: int = 120, services: tuple[str, ...] = SERVICES) -> dict[Any, np.ndarray]:
    """Return series in which load drives work and delays of callees add up in callers."""
    rng = np.random.default_rng(seed)
    result: dict[tuple[str, str], np.ndarray] = {}
    load = 20 + rng.normal(0, 2, seconds)
    for service in services:
        result[service, "load"] = load + rng.normal(0, 0.5, seconds)
        result[service, "work"] = 0.05 * load + rng.normal(0, 0.05, seconds)
        result[service, "heap"] = 100 + rng.normal(0, 1, seconds)
        result[service, "faults"] = rng.uniform(0, 0.1, seconds)
    return result | with_delays({service: 5 + rng.normal(0, 0.5, seconds) for service in services}, services)


def with_delays(own: Mapping[str, np.ndarray], services: tuple[str, ...] = SERVICES) -> dict[Any, np.ndarray]:
    names: dict[str, str] = dict(zip(SERVICES, services, strict=True))
    delay: dict[str, np.ndarray] = {}
    for original in reversed(SERVICES):
        callees = [names[callee] for caller, callee in CALLS if caller == original]
        delay[names[original]] = own[names[original]] + sum((delay[callee] for callee in callees), np.zeros(1))
    return {(service, "delay"): values for service, values in delay.items()}


def dropped(seed: int = 0, services: tuple[str, ...] = SERVICES, target: str = "user") -> dict[Any, np.ndarray]:
    """Return series in which one service stops working after 70 s, so that its series only decrease."""
    series = healthy_series(seed, services=services)
    for metric, low in (("work", 0.0), ("heap", 20.0), ("load", 0.0)):
        values = series[target, metric].copy()
        values[70:] = low + 0.01 * np.arange(50) / 50
        series[target, metric] = values
    return series


def ask(name: str, view: EpisodeView, second: float = 72) -> Ranking:
    result: Any = registry.get_baseline(name).build()
    return result.localize(view, view.window[0] + round(second * SECOND))


def chain(rng: np.random.Generator, samples: int, shift: float = 0.0, nodes: int = 4) -> np.ndarray:
    """Return a chain x0 -> x1 -> x2 ... with an intervention on x1."""
    columns = [rng.normal(size=samples)]
    for node in range(1, nodes):
        columns.append(1.5 * columns[-1] + rng.normal(size=samples) + (shift if node == 1 else 0.0))
    return np.column_stack(columns)
