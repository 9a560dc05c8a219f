"""Signatures are independent of services' names, and diagnosers distinguish faults by them."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from faultset.baselines.contract import Labelled
from faultset.baselines.methods.controls import ConstantPair
from faultset.baselines.methods.diagnosis import MAX_Z, describe_fault
from faultset.baselines.registry import get_baseline
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000
TAUGHT = ("nearest-signature", "rca-tree", "rca-forest")
HOG, LEAK = ("Operating System", "Code Defect"), ("Application", "Operation Error")


@pytest.fixture(scope="module")
def healthy(example) -> str:
    return next(episode for episode in example.episodes if not example.label(episode).fault)


@pytest.fixture(scope="module")
def moved(healthy, alter):
    """Change one metric of a service in the second half of a healthy view with gauges only."""

    @functools.cache
    def change(service: str, metric: str, factor: float) -> EpisodeView:
        def edit(rows: pa.Table) -> pa.Table:
            rows = rows.filter(pc.field("metric").isin([MEMORY, THREADS]))
            time = rows["time"].cast("int64").to_numpy()
            late = time > (time.min() + time.max()) // 2
            named = (rows["service"].to_numpy() == service) & (rows["metric"].to_numpy() == metric)
            value = rows["value"].to_numpy()
            value = np.where(named & late, value * factor, value)
            return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(value))

        return alter(healthy, {"metrics": edit, "spans": few, "logs": few})

    return change


def few(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


MEMORY = "container_memory_working_set_bytes"
THREADS = "container_threads"


def features(view: EpisodeView) -> dict[str, float]:
    result = describe_fault(view)
    assert result is not None
    return dict(result.features)


def test_the_sign_of_a_deviation_is_kept(moved) -> None:
    up, down = features(moved("geo", MEMORY, 3.0)), features(moved("geo", MEMORY, 0.3))
    assert up["memory, suspect"] > 3
    assert down["memory, suspect"] < -3
    assert abs(up["memory, suspect"]) <= np.log1p(MAX_Z) + 1e-9


def test_the_signature_does_not_depend_on_the_service_that_deviates(moved) -> None:
    geo, rate = features(moved("geo", MEMORY, 3.0)), features(moved("rate", MEMORY, 3.0))
    assert geo["memory, suspect"] == pytest.approx(rate["memory, suspect"], rel=0.1)
    names = " ".join([*geo, *rate])
    assert not any(service in names for service in ("geo", "frontend", "profile", "recommendation"))


def test_the_suspect_is_the_service_that_deviates_most(moved) -> None:
    for service in ("geo", "profile"):
        result = describe_fault(moved(service, MEMORY, 3.0))
        assert result is not None
        assert result.suspect == service


def test_changes_and_troubles_of_objects_are_named(healthy, example, alter) -> None:
    start_ns, end_ns = example.view(healthy).window

    def states(rows: pa.Table) -> pa.Table:
        expected = []
        for second in range(0, (end_ns - start_ns) // SECOND, 10):
            port = 8083 if second < 60 else 9999
            ready = 1 if second < 60 else 0
            expected += [(second, "Service", {"ports": [port]}), (second, "Endpoints", {"ready": ready})]
        schema = TABLES["objects"]
        rows_ = [
            {"episode": "e", "time": start_ns + second * SECOND, "kind": kind, "name": "geo", "service": "geo"}
            | {"state": json.dumps(state)}
            for second, kind, state in expected
        ]
        return pa.table({field.name: pa.array([row.get(field.name) for row in rows_], field.type) for field in schema})

    result = features(alter(healthy, {"objects": states}))
    assert result["changed: Service ports"] == 1
    assert result["object: no endpoints"] > 0.5


def test_a_view_without_rows_has_no_signature(healthy, alter) -> None:
    assert describe_fault(alter(healthy, {name: lambda rows: rows.slice(0, 0) for name in TABLES})) is None


@pytest.fixture(scope="module")
def lessons(moved, example) -> list[Labelled]:
    """Build training faults that double memory or threads, each on a different service."""
    result: list[Labelled] = []
    for service in ("search", "rate", "profile"):
        for metric, pair in ((MEMORY, LEAK), (THREADS, HOG)):
            view = moved(service, metric, 2.5)
            result.append(Labelled(view=view, service=service, system_level=pair[0], fault_type=pair[1]))
    result.append(Labelled(view=moved("geo", MEMORY, 1.0), service=None, system_level=None, fault_type=None))
    return result


@pytest.mark.parametrize("name", TAUGHT)
def test_a_kind_of_fault_is_recognised_on_a_service_never_seen(name: str, lessons, moved) -> None:
    taught: Any = get_baseline(name).build().fit(lessons)  # type: ignore[arg-type]
    for metric, pair in ((MEMORY, LEAK), (THREADS, HOG)):
        diagnosis = taught.diagnose(moved("recommendation", metric, 4.0), 0)
        assert (diagnosis.system_level, diagnosis.fault_type) == pair
        assert 0.5 < diagnosis.confidence <= 1
        assert diagnosis.evidence


@pytest.mark.parametrize("name", TAUGHT)
def test_the_order_of_lessons_does_not_matter(name: str, lessons, moved) -> None:
    view = moved("geo", MEMORY, 3.0)
    first: Any = get_baseline(name).build(seed=3).fit(lessons)  # type: ignore[arg-type]
    other: Any = get_baseline(name).build(seed=3).fit(lessons[::-1])  # type: ignore[arg-type]
    found, again = first.diagnose(view, 0), other.diagnose(view, 0)
    assert (found.system_level, found.fault_type) == (again.system_level, again.fault_type)


def lesson(pair: tuple[str | None, str | None]) -> Labelled:
    return Labelled(view=None, service=None, system_level=pair[0], fault_type=pair[1])  # type: ignore[arg-type]


def test_the_constant_answer_is_the_most_frequent_pair() -> None:
    control = ConstantPair().fit([lesson(HOG), lesson(LEAK), lesson((None, None)), lesson((None, None)), lesson(LEAK)])
    diagnosis = control.diagnose(None, 0)  # type: ignore[arg-type]
    assert (diagnosis.system_level, diagnosis.fault_type) == LEAK
    assert diagnosis.confidence == pytest.approx(2 / 3)


def test_the_constant_answer_counts_pairs_and_not_their_parts() -> None:
    pairs = [("A", "x"), ("A", "y"), ("A", "z"), ("B", "w"), ("B", "w")]
    diagnosis = ConstantPair().fit([lesson(pair) for pair in pairs]).diagnose(None, 0)  # type: ignore[arg-type]
    assert (diagnosis.system_level, diagnosis.fault_type) == ("B", "w")
