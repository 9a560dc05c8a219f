"""The shipped checks for every registered baseline, and independence of units."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.contract import Detection
from faultset.baselines.networks import EXTRA
from faultset.baselines.registry import BaselineSpec, get_baseline, list_baselines
from faultset.baselines.testing import CHECKS, BaselineTrial
from faultset.baselines.testing.episodes import example_episodes, with_column
from faultset.core.errors import is_installed
from faultset.datasets.format.storage import order_of
from faultset.datasets.views import EpisodeView

SPECS = list_baselines()
LACKING = [
    name for name, spec in SPECS.items() if spec.extra == "forecasters" or (spec.extra and not is_installed(spec.extra))
]
"""Baselines whose extra or weights are missing."""
EXPECTED_TO_FAIL = {
    ("missing-edge", "detection accuracy"): "in the example no call stops",
    ("last-change", "localization accuracy"): "changes in the example are at random",
    ("last-harmful-change", "localization accuracy"): "changes in the example are at random",
}
UNIT_DECIDES = {
    "baro": "the published code divides by 1 where the interquartile range is 0",
}
METRIC_METHODS = [
    spec
    for spec in SPECS.values()
    if "metrics" in spec.tables and spec.task != "rca" and spec.speed != "slow"
    if spec.name not in LACKING
]
SCALE_FREE = [spec for spec in METRIC_METHODS if spec.name not in UNIT_DECIDES]
ALWAYS = "usad"
"""The one network that is trained in every run; the others are with the slow tests."""


def marks(spec: BaselineSpec) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if spec.extra == EXTRA and spec.name != ALWAYS else []


@functools.cache
def trial_of(name: str) -> BaselineTrial:
    """Return the trial of a baseline, which is fitted once for all tests."""
    return BaselineTrial(SPECS[name])


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(spec)) for name, spec in SPECS.items()])
def test_it_meets_the_contract(name: str) -> None:
    if name in LACKING:
        pytest.skip(f"the extra {SPECS[name].extra}, or the weights of its model, are not installed")
    trial, wrong = trial_of(name), {}
    for check, run in CHECKS.items():
        try:
            run(trial)
        except AssertionError as error:
            wrong[check] = str(error)
    expected = {check for baseline, check in EXPECTED_TO_FAIL if baseline == name}
    assert wrong.keys() == expected, wrong


def test_a_built_in_baseline_cites_its_source_and_a_control_says_that_it_is_one() -> None:
    for name in SPECS:
        spec = get_baseline(name)
        text = str(spec.factory.__doc__)
        assert text.lstrip().startswith("Control") == (spec.kind == "control"), name
        assert spec.kind in ("control", "rule") or "References" in text, name
        assert spec.complexity.startswith("O("), name


def in_other_units(rows: pa.Table) -> pa.Table:
    """Multiply every second metric by a million and the others by a millionth."""
    _, place = np.unique(rows["metric"].to_pylist(), return_inverse=True)
    values = rows["value"].to_numpy() * np.where(place % 2, 1e6, 1e-6)
    return with_column(rows, "value", pa.array(values))


def with_constants(rows: pa.Table) -> pa.Table:
    """Add a constant metric to every service."""
    names = rows["metric"].to_pylist()
    first = rows.filter(pa.array([name == names[0] for name in names]))
    constant = pa.array(["a_setting"] * len(first)).cast(rows["metric"].type)
    first = with_column(with_column(first, "metric", constant), "value", pa.array(np.full(len(first), 7.0)))
    both = pa.concat_tables([rows, first], promote_options="permissive").cast(rows.schema)
    columns = {name: both[name] for name in both.column_names}
    coded = pa.table({n: c.dictionary_encode() if pa.types.is_string(c.type) else c for n, c in columns.items()})
    order = order_of("metrics", coded)
    return both if order is None else both.take(order)


@functools.cache
def alter(*, constants: bool) -> EpisodeView:
    def edit(rows: pa.Table) -> pa.Table:
        return in_other_units(with_constants(rows) if constants else rows)

    return example_episodes().alter(f"other units, constants: {constants}", {"metrics": edit})


@pytest.mark.parametrize("spec", [pytest.param(spec, marks=marks(spec), id=spec.name) for spec in SCALE_FREE])
def test_answers_depend_neither_on_units_nor_on_metrics_that_never_move(spec: BaselineSpec):
    trial = trial_of(spec.name)
    # Random draws depend on the number of series.
    found, expected = trial.answer(alter(constants=not spec.stochastic)), trial.expected
    what = "alarm_ns" if isinstance(expected, Detection) else "ordered"
    assert getattr(found, what) == getattr(expected, what)


def test_the_exceptions_are_registered_methods():
    assert set(UNIT_DECIDES) <= {spec.name for spec in METRIC_METHODS}


ASK = """
import sys
from faultset.baselines.registry import list_baselines
from faultset.datasets.views import EpisodeView

view = EpisodeView(sys.argv[1])
start, end = view.reference[1], view.window[1]
for name, spec in sorted(list_baselines().items()):
    if spec.task == "localization" and spec.speed == "instant":
        found = spec.build().localize(view, start + (end - start) // 2)
        pods, metrics = sorted(found.pods.items()), sorted(found.metrics.items())
        print(name, list(found.scores.items()), metrics, pods, found.evidence)
"""


def test_equal_answers_whatever_the_hashes_of_names_are(example, faulty) -> None:
    path = Path(example.root) / "episodes" / faulty
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(path)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs[0][1]
    first, second = (answers.splitlines() for answers, _ in outputs)
    assert len(first) > 15
    assert [line.split(" ", 1)[0] for line in first] == [line.split(" ", 1)[0] for line in second]
    for one, other in zip(first, second, strict=True):
        assert one == other
