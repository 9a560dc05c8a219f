"""No score is decided by a unit: other scales, and metrics that never move, leave the answers as they are."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.api.contract import Detection
from faultset.baselines.api.registry import BaselineSpec, list_baselines
from faultset.baselines.neural.extra import EXTRA, missing_packages
from faultset.baselines.testing.episodes import example_episodes, with_column
from faultset.baselines.testing.trial import BaselineTrial
from faultset.datasets.format.ordering import order_of
from faultset.datasets.views import EpisodeView

UNIT_DECIDES = {
    "baro": "the published code divides by 1 where the interquartile range is 0",
    "baro-own": "ranks as baro does",
}
METRIC_METHODS = [
    spec
    for spec in list_baselines().values()
    if "metrics" in spec.tables and spec.task != "rca" and spec.speed != "slow"
    if spec.extra != EXTRA or not missing_packages()
]
SCALE_FREE = [spec for spec in METRIC_METHODS if spec.name not in UNIT_DECIDES]


def in_other_units(rows: pa.Table) -> pa.Table:
    """Multiply every second metric by a million and the others by a millionth."""
    _, place = np.unique(rows["metric"].to_pylist(), return_inverse=True)
    values = rows["value"].to_numpy() * np.where(place % 2, 1e6, 1e-6)
    return with_column(rows, "value", pa.array(values))


def with_constants(rows: pa.Table) -> pa.Table:
    """Add a metric that has the same value at all times to every service."""
    names = rows["metric"].to_pylist()
    one = rows.filter(pa.array([name == names[0] for name in names]))
    constant = pa.array(["a_setting"] * len(one)).cast(rows["metric"].type)
    one = with_column(with_column(one, "metric", constant), "value", pa.array(np.full(len(one), 7.0)))
    both = pa.concat_tables([rows, one], promote_options="permissive").cast(rows.schema)
    columns = {name: both[name] for name in both.column_names}
    coded = pa.table({n: c.dictionary_encode() if pa.types.is_string(c.type) else c for n, c in columns.items()})
    order = order_of("metrics", coded)
    return both if order is None else both.take(order)


@functools.cache
def altered(*, constants: bool) -> EpisodeView:
    def edit(rows: pa.Table) -> pa.Table:
        return in_other_units(with_constants(rows) if constants else rows)

    return example_episodes().altered(f"other units, constants: {constants}", {"metrics": edit})


@pytest.mark.parametrize("spec", SCALE_FREE, ids=lambda spec: spec.name)
def test_answers_depend_neither_on_units_nor_on_metrics_that_never_move(spec: BaselineSpec):
    trial = BaselineTrial(spec)
    # what is drawn at random depends on the number of series
    found, expected = trial.answer(altered(constants=not spec.stochastic)), trial.expected
    what = "alarm_ns" if isinstance(expected, Detection) else "ordered"
    assert getattr(found, what) == getattr(expected, what)


def test_the_exceptions_are_registered_methods():
    assert set(UNIT_DECIDES) <= {spec.name for spec in METRIC_METHODS}
