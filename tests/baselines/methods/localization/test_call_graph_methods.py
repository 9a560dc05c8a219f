"""What localizers make of spans and log lines: latencies, walks over the call graph, alarms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.features.service_latency import (
    ServiceLatency,
    anomalous_services,
    call_graph,
    call_series,
    correlations,
    service_latency,
    similarity_to_front,
)
from faultset.baselines.features.windows import TimeWindow
from faultset.baselines.logs.line_shapes import shape_counts
from faultset.baselines.methods.localization.call_graphs.microscope import Microscope, descent_ends
from faultset.baselines.methods.localization.call_graphs.random_walks import MonitorRank, visits, walk_graph
from faultset.baselines.methods.localization.multimodal.torai import count_severity
from faultset.baselines.methods.rules.simple_rca import slow_operations
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.log_masks import masked, masked_column

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class Spoken:
    """An episode of 40 seconds with the tables it is given, healthy for 24."""

    def __init__(self, calls: tuple[tuple[str, str], ...] = (), **tables: list[dict[str, Any]]) -> None:
        self.calls = calls
        self.services = ("front", "cart", "db")
        self.view, self.reference = (START, START + 40 * SECOND), (START, START + 24 * SECOND)
        self.context = SimpleNamespace(workload_entry="front", resolution_s=1.0)
        self.episode = "spoken"
        self._rows = tables

    def table(self, name: str, columns: Any = None, filters: Any = None) -> pa.Table:
        schema = TABLES[name]
        rows = [{"episode": "spoken", "attributes": "{}", **row} for row in self._rows.get(name, [])]
        return pa.Table.from_pylist(rows, schema=schema).select(list(columns))


def span(second: float, service: str, kind: str, ms: float, peer: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "time": START + round(second * SECOND),
        "service": service,
        "reported_service": service,
        "peer_service": peer,
        "kind": kind,
        "operation": f"{peer or service}.Get",
        "duration_ns": round(ms * 1e6),
        "status": "unset",
        **more,
    }


def conversation(slow_from: int | None = None) -> list[dict[str, Any]]:
    """One request a second: front calls cart, cart calls db; db and with it all become slow."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for second in range(40):
        extra = 400.0 * rng.uniform(0.8, 1.2) if slow_from is not None and second >= slow_from else 0.0
        own = rng.uniform(0.8, 1.2, 3)
        db = 5 * own[0] + extra
        cart = db + 10 * own[1]
        rows += [
            span(second + 0.1, "front", "server", cart + 20 * own[2]),
            span(second + 0.2, "front", "client", cart + 1, "cart"),
            span(second + 0.3, "cart", "server", cart),
            span(second + 0.4, "cart", "client", db, "db"),
        ]
    return rows


def spoken(**tables: Any) -> Any:
    return cast(Any, Spoken(**tables))


def test_a_call_counts_for_the_called_and_servers_speak_only_where_no_client_does() -> None:
    rows = [
        span(0.1, "front", "server", 30),
        span(0.2, "front", "client", 20, "cart"),
        span(0.3, "cart", "server", 10),
        span(0.6, "front", "client", 40, "cart", status="error"),
        span(5.5, "front", "server", 50),
    ]
    found = call_series(spoken(spans=rows))
    assert found.services == ("cart", "front")
    assert found.seconds[0] == pytest.approx([0.030, 0.030])
    assert found.seconds[5] == pytest.approx([np.nan, 0.050], nan_ok=True)
    assert found.errors.sum(axis=0).tolist() == [1.0, 0.0]
    assert found.pairs == (("front", "cart"),)


def test_the_declared_call_graph_goes_before_the_seen_one() -> None:
    rows = [span(0.2, "front", "client", 20, "cart"), span(0.2, "front", "client", 20, "who-is-this")]
    assert call_graph(spoken(spans=rows)) == (("front", "cart"),)
    declared = (("cart", "db"), ("cart", "cart"), ("cart", "elsewhere"))
    assert call_graph(spoken(spans=rows, calls=declared)) == (("cart", "db"),)


def test_latency_is_told_in_healthy_spreads_and_steps_without_calls_are_usual() -> None:
    rows = [row for row in conversation(slow_from=28) if row["time"] != START + round(30.4 * SECOND)]
    found = service_latency(spoken(spans=rows), START + 30 * SECOND)
    assert found.services == ("cart", "db", "front")
    assert found.reference.shape == (24, 3)
    assert found.values.shape == (12, 3)
    assert found.reference.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
    assert found.values[2, 1] == 0.0
    assert set(anomalous_services(found)) == {"cart", "db", "front"}


def test_correlations_are_pearsons() -> None:
    rng = np.random.default_rng(1)
    series, target = rng.normal(size=(50, 3)), rng.normal(size=50)
    series[:, 1] = 4.0
    expected = [np.corrcoef(series[:, 0], target)[0, 1], 0.0, np.corrcoef(series[:, 2], target)[0, 1]]
    assert correlations(series, target) == pytest.approx(expected)


def test_visits_are_the_fixed_point_of_the_walk() -> None:
    calls = (("front", "cart"), ("front", "user"), ("cart", "db"))
    similarity = {"front": 1.0, "cart": 0.7, "user": 0.2, "db": 0.9}
    graph = walk_graph(calls, similarity, backward=0.2)
    names = sorted(similarity)
    weight = np.zeros((4, 4))
    for start, end, value in graph.edges(data="weight"):
        weight[names.index(start), names.index(end)] = value
    moves = weight / weight.sum(axis=1, keepdims=True)
    start = {"cart": 0.7, "user": 0.2, "db": 0.9}
    restart = np.array([start.get(name, 0.0) for name in names]) / sum(start.values())
    expected = np.linalg.solve(np.eye(4) - 0.85 * moves.T, 0.15 * restart)
    found = visits(graph, start)
    assert [found[name] for name in names] == pytest.approx(expected.tolist(), abs=1e-5)
    # db: 0.9 on the spot, 0.2 * 0.7 back to cart; front: towards cart and user, and 1 - 0.7 on the spot.
    assert weight[names.index("db")].tolist() == pytest.approx([0.14, 0.9, 0.0, 0.0])
    assert weight[names.index("front")].tolist() == pytest.approx([0.7, 0.0, 0.3, 0.2])


def test_a_pair_that_calls_both_ways_keeps_the_stronger_reason() -> None:
    graph = walk_graph((("a", "b"), ("b", "a")), {"a": 1.0, "b": 0.1}, backward=0.5)
    assert graph["a"]["b"]["weight"] == pytest.approx(0.1)
    assert graph["b"]["a"]["weight"] == pytest.approx(1.0)


def test_the_descent_ends_where_no_callee_is_anomalous_and_cycles_end() -> None:
    calls = (("f", "a"), ("a", "b"), ("b", "a"), ("f", "c"))
    assert descent_ends(calls, "f", {"f": 4.0, "c": 4.0}) == ("c",)
    assert descent_ends(calls, "f", {"c": 4.0}) == ()
    assert descent_ends(calls, "f", {"f": 4.0, "a": 4.0, "b": 4.0}) == ()


def test_walkers_find_the_slow_service_at_the_end_of_the_chain() -> None:
    episode = spoken(spans=conversation(slow_from=28), calls=(("front", "cart"), ("cart", "db")))
    assert MonitorRank().localize(episode, START + 30 * SECOND).ordered[0] == "db"
    assert Microscope().localize(episode, START + 30 * SECOND).ordered == ("db",)


def test_microscope_names_nobody_where_the_front_end_is_well() -> None:
    episode = spoken(spans=conversation(), calls=(("front", "cart"), ("cart", "db")))
    assert Microscope().localize(episode, START + 30 * SECOND).abstains


def test_a_front_end_that_never_moves_is_similar_to_nobody() -> None:
    flat = ServiceLatency(services=("cart", "front"), reference=np.zeros((5, 2)), values=np.eye(2)[[0, 0]])
    assert similarity_to_front(flat, "front") == {}
    assert similarity_to_front(flat, "elsewhere") == {}
    assert similarity_to_front(flat, "cart") == {"cart": pytest.approx(1.0), "front": 0.0}


def test_an_operation_is_slow_from_three_times_its_healthy_percentile_on() -> None:
    rows = [span(second / 10, "cart", "server", 10) for second in range(200)]
    rows += [span(28 + second / 10, "cart", "server", 29 if second % 2 else 31) for second in range(50)]
    rows += [span(second / 10, "db", "server", 10) for second in range(200)]
    rows += [span(28 + second / 10, "db", "server", 29) for second in range(50)]
    rows += [span(28 + second / 10, "front", "server", 500) for second in range(50)]
    time_window = TimeWindow(
        start_ns=START + 28 * SECOND,
        end_ns=START + 40 * SECOND,
        healthy_start_ns=START,
        healthy_end_ns=START + 24 * SECOND,
    )
    assert slow_operations(spoken(spans=rows), time_window) == {("cart", "cart.Get"): pytest.approx(3.1)}


def test_texts_and_columns_are_masked_alike() -> None:
    lines = ["took 12.5ms", "id 4BF92F35 at 0X1f", "no digits in feed", "0x10", ""]
    column = masked_column(pa.chunked_array([lines])).to_pylist()
    assert column == [masked(line) for line in lines]
    assert column == ["took <*>.<*>ms", "id <*> at <*>", "no digits in feed", "<*>", ""]


def test_lines_count_by_service_and_by_how_they_begin() -> None:
    def line(second: float, service: str, message: str) -> dict[str, Any]:
        time = START + round(second * SECOND)
        return {"time": time, "service": service, "pod": "p", "container": "c", "message": message}

    rows = [
        line(0.5, "cart", "got item 17"),
        line(0.6, "cart", "got item 4"),
        line(1.5, "cart", "got item 9"),
        line(1.5, "db", "got item 9"),
        line(39.9, "db", "connection 0x7f3a lost"),
        line(50.0, "db", "too late"),
        line(3.0, "stranger", "hello"),
    ]
    found = shape_counts(spoken(logs=rows), 1.0)
    assert found.shapes == (("cart", "got item <*>"), ("db", "connection <*> lost"), ("db", "got item <*>"))
    assert found.counts[:2].tolist() == [[2.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    assert found.counts[39].tolist() == [0.0, 1.0, 0.0]
    assert shape_counts(spoken(), 1.0).counts.shape == (40, 0)


def test_a_template_that_falls_silent_is_as_severe_as_one_that_doubles() -> None:
    reference = np.full((10, 2), 9.0)
    assert count_severity(reference, np.array([[0.0, 18.0]])).tolist() == [3.0, 3.0]
