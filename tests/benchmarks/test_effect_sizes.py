"""The effects of faults in several datasets, and their agreement between two platforms."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.format.context import Sampling

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "datasets" / "sample"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "external")


def load_script(name: str) -> Any:
    """Import a script afresh, as its folder is not a package."""
    sys.modules.pop(name, None)
    return importlib.import_module(name)


class Tables:
    """Fake tables, whose values follow from the window."""

    serving = frozenset({"front", "geo", "rate"})

    def __init__(self, values: dict[tuple[int, int], dict[tuple[str, str], float]]):
        self.values = values.__getitem__


class View:
    """A front service that calls geo and rate; nobody calls alone."""

    calls = (("front", "geo"), ("front", "rate"), ("geo", "store"))
    services = ("alone", "front", "geo", "rate", "store")
    reference, window = (0, 100), (0, 180)


class Label:
    fault, targets, inject_start_ns = "cpu-hog", ("geo",), 120


class Case:
    view, label, id = View(), Label(), "e1"


def test_effects_are_changes_at_the_target_its_callers_the_entry_and_unrelated_services() -> None:
    script = load_script("effect_sizes")
    before = {("geo", "cpu"): 2.0, ("front", "cpu"): 1.0, ("alone", "cpu"): 1.0, ("front", "errors"): 0.1}
    after = {("geo", "cpu"): 6.0, ("front", "cpu"): 2.0, ("alone", "cpu"): 1.0, ("front", "errors"): 0.4}
    # the time after the onset ends with the view, before it is as long as the reference
    effects = script.measure_effects(Case, Tables({(0, 100): before, (120, 180): after}))
    assert effects["target", "cpu"] == [3.0]
    assert effects["callers", "cpu"] == effects["entry", "cpu"] == [2.0]
    # rate neither reaches geo nor is reached by it, but has no data
    assert effects["unrelated", "cpu"] == [1.0]
    assert effects["callers", "errors"] == [pytest.approx(0.3)]
    assert script.describe([1.0, 2.0, 3.0, float("nan")]) == "2 [1.5, 2.5] n=3"
    assert script.describe([1.0]) == "1"


def test_the_share_within_other_data_is_bold_if_the_median_lies_outside() -> None:
    compare = load_script("effect_sizes").compare
    assert compare([1.0, 3.2, 9.0], [0.5, 1.0, 3.0]) == "67%"
    assert compare([1.0, 8.0, 9.0], [0.5, 1.0, 3.0]) == "**33%**"
    assert compare([-0.005, 0.0, 0.2], [0.0, 0.0, 0.0]) == "67%"
    assert compare([1.0], [1.0, 2.0]) == "-"


def test_spans_of_traces_kept_by_chance_stand_for_those_that_were_not_kept() -> None:
    script = load_script("effect_sizes")
    rows = [("a", 1, False), ("b", 2, False), ("slow", 900, False), ("failed", 3, True), ("failed", 4, False)]
    spans = pd.DataFrame(rows, columns=["trace_id", "duration_ns", "failed"])
    sampling = Sampling(traces=0.1, slow_traces_s=5e-7, log_levels=())
    spans["weight"] = script.weigh_spans(spans, sampling)
    assert spans["weight"].tolist() == [10, 10, 1, 1, 1]
    assert script.compute_duration_quantile(spans, 0.9) == 3
    assert script.weigh_spans(spans, None) == 1


def test_rates_count_only_seconds_that_were_recorded() -> None:
    script = load_script("effect_sizes")
    assert script.measure_covered_s(np.array([0, 3, 9, 40, 41]) * SECOND_NS) == 20


def test_the_entry_is_the_declared_one_without_server_spans() -> None:
    script = load_script("effect_sizes")
    view = SimpleNamespace(calls=(), services=("a", "b"), context=SimpleNamespace(workload_entry="a"))
    groups = script.service_groups(view, ["b"], frozenset())
    assert groups == {"target": {"b"}, "callers": set(), "entry": {"a"}, "unrelated": {"a"}}


def test_spans_that_never_fail_have_no_share_of_failures() -> None:
    script = load_script("effect_sizes")
    silent, telling = script.Effects("silent", imported=True), script.Effects("telling", imported=False)
    for effects, failed in ((silent, 0.0), (telling, 0.2)):
        effects.healthy["errors"] = [0.0]
        effects.changes["cpu", "target", "errors"] = [failed]
        effects.drop_unknown_errors()
    assert script.build_row([telling, silent], [telling, silent], ("cpu", "target", "errors")) == ["0.2", "-", "-"]
    assert script.build_row([telling, silent], [telling, silent], "errors") == ["0", "-", "-"]


@pytest.mark.parametrize(
    ("fault", "family"),
    [
        ("cpu-hog", "cpu"),
        ("memory-leak", "memory"),
        ("network_delay", "delay"),
        ("slow-store", "delay"),
        ("network-loss", "network"),
        ("pod-failure", "pods"),
        ("buggy-image", "code"),
        ("searcherrorpercent", "code"),
        ("target-port", "configuration"),
    ],
)
def test_the_name_of_a_fault_decides_its_family(fault: str, family: str) -> None:
    assert load_script("effect_sizes").family_of(fault) == family


def test_the_tables_of_the_sample_show_effects_at_the_target() -> None:
    result = CliRunner().invoke(load_script("effect_sizes").main, [str(SAMPLE)])
    assert result.exit_code == 0, result.output
    assert "Healthy: median [quartiles] over episodes" in result.output
    assert "| cpu at target |" in result.output


def test_a_dataset_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("platform_agreement")
    dataset = open_dataset(SAMPLE)
    pairs = script.pair_episodes(dataset, dataset)
    assert {first.id for first, _ in pairs} == {name for name in dataset.episodes if dataset[name].label.fault}

    def score(_: object, names: list[str], metric: str) -> pd.DataFrame:
        ids = sorted(first.id for first, _ in pairs)
        return pd.DataFrame({name: np.arange(len(ids)) / (n + 1) for n, name in enumerate(names)}, index=ids)

    monkeypatch.setattr(script, "score_episodes", score)
    result = CliRunner().invoke(script.main, [str(SAMPLE), str(SAMPLE), "--baselines", "a,b,c"])
    assert result.exit_code == 0, result.output
    assert "rank correlation of the 3 means: +1.00 [" in result.output
    assert "| cpu | target |" in result.output


def test_differences_of_effects_have_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load_script("platform_agreement")
    effects = {"embedded": 2.0, "cluster": 4.0}
    monkeypatch.setattr(script, "measure_effects", lambda name: {("target", "latency"): [effects[name]]})
    script.print_effects([("embedded", "cluster")] * 4)
    # the logarithm of the ratio of four plans with the same difference
    assert "| latency | target | 4 | +0.69 [+0.69, +0.69] |" in capsys.readouterr().out
