"""Metric localizers on whole episodes where the answer is known, and the traps that published code fell into."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.api import registry
from faultset.baselines.api.contract import Detection, Ranking
from faultset.datasets.format.schemas import METRICS, TABLES, stored
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000
ROLES = {"load": "traffic", "work": "cpu", "heap": "memory", "delay": "latency", "faults": "errors"}
SERVICES = ("front", "cart", "user", "db", "cache", "mail")
CALLS = (("front", "cart"), ("front", "user"), ("front", "mail"), ("cart", "cache"), ("cart", "db"), ("user", "db"))
UPWARDS = ("nsigma", "baro", "baro-own")
"""In their published form these look at what rises only."""
BOTH_WAYS = (
    "nsigma-two-sided",
    "baro-two-sided",
    "epsilon-diagnosis",
    "circa",
    "rcd",
    "micro-cause",
    "torai",
    "simple-rca",
)
LOCALIZERS = (*UPWARDS, *BOTH_WAYS)
Series = Mapping[tuple[str, str], np.ndarray]
World = Callable[..., EpisodeView]


@pytest.fixture(scope="session")
def world(example, faulty, alter) -> World:
    """Make an episode of given series, one sample a second, and without other tables."""
    start = example.view(faulty).view[0]

    def make(series: Series, services: tuple[str, ...] = SERVICES, calls: Any = CALLS) -> EpisodeView:
        schema = stored(METRICS)
        rows: dict[str, list[Any]] = {name: [] for name in schema.names}
        for (service, metric), values in series.items():
            count = len(values)
            rows["time"] += [start + second * SECOND + SECOND // 2 for second in range(count)]
            rows["value"] += values.tolist()
            for name, text in {
                "episode": faulty,
                "service": service,
                "pod": f"{service}-0",
                "container": service,
                "metric": metric,
                "labels": "{}",
                "kind": "gauge",
            }.items():
                rows[name] += [text] * count
        table = pa.table({name: pa.array(rows[name], schema.field(name).type) for name in schema.names})

        def context(text: str) -> str:
            roles = [
                {"source": "test", "metric": metric, "role": role, "unit": "1", "kind": "gauge", "combine": "sum"}
                for metric, role in ROLES.items()
            ]
            changed = {"services": services, "calls": calls, "workload_entry": services[0], "metric_roles": roles}
            return json.dumps(json.loads(text) | changed)

        empty = dict.fromkeys(TABLES, lambda rows: rows.slice(0, 0))
        return alter(faulty, empty | {"metrics": lambda rows: table}, context=context)

    return make


def healthy_series(seed: int = 0, seconds: int = 120, services: tuple[str, ...] = SERVICES) -> dict[Any, np.ndarray]:
    """Load drives work; delays of callees add up in their callers."""
    rng = np.random.default_rng(seed)
    found: dict[tuple[str, str], np.ndarray] = {}
    load = 20 + rng.normal(0, 2, seconds)
    for service in services:
        found[service, "load"] = load + rng.normal(0, 0.5, seconds)
        found[service, "work"] = 0.05 * load + rng.normal(0, 0.05, seconds)
        found[service, "heap"] = 100 + rng.normal(0, 1, seconds)
        found[service, "faults"] = rng.uniform(0, 0.1, seconds)
    return found | with_delays({service: 5 + rng.normal(0, 0.5, seconds) for service in services}, services)


def with_delays(own: Mapping[str, np.ndarray], services: tuple[str, ...] = SERVICES) -> dict[Any, np.ndarray]:
    names: dict[str, str] = dict(zip(SERVICES, services, strict=True))
    delay: dict[str, np.ndarray] = {}
    for original in reversed(SERVICES):
        callees = [names[callee] for caller, callee in CALLS if caller == original]
        delay[names[original]] = own[names[original]] + sum((delay[callee] for callee in callees), np.zeros(1))
    return {(service, "delay"): values for service, values in delay.items()}


def dropped(seed: int = 0, services: tuple[str, ...] = SERVICES, target: str = "user") -> dict[Any, np.ndarray]:
    """From the 70th second on one service does nothing any more: work and heap go down, nothing goes up."""
    series = healthy_series(seed, services=services)
    for metric, low in (("work", 0.0), ("heap", 20.0), ("load", 0.0)):
        values = series[target, metric].copy()
        values[70:] = low + 0.01 * np.arange(50) / 50
        series[target, metric] = values
    return series


def ask(name: str, view: EpisodeView, second: float = 72) -> Ranking:
    found: Any = registry.get_baseline(name).build()
    return found.localize(view, view.view[0] + round(second * SECOND))


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_what_goes_down_is_found(name: str, world: World) -> None:
    assert ask(name, world(dropped())).ordered[0] == "user"


@pytest.mark.parametrize("name", ["nsigma", "baro"])
def test_published_scorers_find_what_rises_and_not_what_falls(name: str, world: World) -> None:
    assert ask(name, world(dropped())).ordered[0] != "user"
    series = healthy_series()
    series["user", "heap"] = series["user", "heap"] + np.where(np.arange(120) >= 70, 40.0, 0.0)
    assert ask(name, world(series)).ordered[0] == "user"


def test_baro_finds_its_own_change_point_where_errors_and_delays_jump(world: World) -> None:
    series = healthy_series()
    for service in ("db", "cart", "user", "front"):
        series[service, "faults"] = series[service, "faults"] + np.where(np.arange(120) >= 70, 3.0, 0.0)
        series[service, "delay"] = series[service, "delay"] + np.where(np.arange(120) >= 70, 30.0, 0.0)
    series["db", "heap"] = series["db", "heap"] - np.where(np.arange(120) >= 70, 90.0, 0.0)
    view = world(series)
    detector: Any = registry.get_baseline("baro-change-point").build()
    found: Detection = detector.detect(view)
    assert found.alarm_ns is not None
    assert 70 * SECOND < found.alarm_ns - view.view[0] <= 74 * SECOND
    assert detector.change_ns(view) == view.view[0] + 70 * SECOND
    # Whatever alarm it is given.
    assert ask("baro-own", view, 50).ordered[0] == "db"
    assert ask("baro-own", view, 50) == ask("baro-own", view, 100)


def test_the_scale_of_the_future_does_not_move_the_change_point(world: World) -> None:
    detector: Any = registry.get_baseline("baro-change-point").build()
    series = healthy_series(1)
    before = detector.detect(world(series))
    for key in series:
        series[key] = np.where(np.arange(120) >= 100, 1e6, series[key])
    after = detector.detect(world(series))
    known = int((before.times_ns <= world(series).view[0] + 100 * SECOND).sum())
    np.testing.assert_allclose(before.scores[:known], after.scores[:known])
    assert after.alarm_ns is not None


def test_circa_blames_the_callee_whose_delay_its_callers_inherit(world: World) -> None:
    rng = np.random.default_rng(3)
    series = healthy_series(3)
    own = {service: 5 + rng.normal(0, 0.5, 120) for service in SERVICES}
    own["cache"] = own["cache"] + np.where(np.arange(120) >= 70, 60 + rng.normal(0, 10, 120), 0.0)
    # The front end has the steadiest delay of its own, so that it seems to move most.
    own["front"] = 5 + rng.normal(0, 0.01, 120)
    series |= with_delays(own)
    found = ask("circa", world(series))
    assert found.ordered[0] == "cache"
    assert max(found.metrics, key=lambda key: found.metrics[key]) == ("cache", "delay")


@pytest.mark.parametrize("name", LOCALIZERS)
def test_nothing_that_moves_is_nobody_to_blame_and_never_the_first_column(name: str, world: World) -> None:
    series = {key: np.full(120, 4.0) for key in healthy_series()}
    assert ask(name, world(series)).abstains


@pytest.mark.parametrize("name", [name for name in BOTH_WAYS if name != "micro-cause"])
def test_the_answer_follows_the_service_and_not_its_name(name: str, world: World) -> None:
    renamed = ("zeta", "yota", "xi", "alpha", "beta", "gamma")
    names: dict[str, str] = dict(zip(SERVICES, renamed, strict=True))
    calls = tuple((names[caller], names[callee]) for caller, callee in CALLS)
    found = ask(name, world(dropped(services=renamed, target=names["user"]), renamed, calls))
    assert found.ordered[0] == names["user"]


@pytest.mark.parametrize("name", LOCALIZERS)
def test_the_answer_needs_no_truth(name: str, example, faulty, alter) -> None:
    def localize(view: EpisodeView) -> Ranking:
        built: Any = registry.get_baseline(name).build()
        return built.localize(view, view.reference[1] + (view.view[1] - view.reference[1]) // 2)

    alone = alter(faulty, {})
    assert not (alone._telemetry.parent / "truth").exists()
    assert localize(alone) == localize(example.view(faulty))


@pytest.mark.parametrize("name", LOCALIZERS)
def test_metric_answers_belong_to_named_services(name: str, world: World) -> None:
    found = ask(name, world(dropped(seed=5)))
    assert {service for service, _ in found.metrics} <= set(found.scores)
    assert name == "torai" or name == "baro-own" or found.metrics


@pytest.mark.parametrize("name", LOCALIZERS)
def test_a_view_with_hardly_any_samples_is_survived(name: str, world: World) -> None:
    for seconds in (1, 49, 52):
        found = ask(name, world(healthy_series(seconds=seconds)), second=50)
        assert set(found.scores) <= set(SERVICES)
