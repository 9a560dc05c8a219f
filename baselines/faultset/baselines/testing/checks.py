"""Checks of the baseline contract; each takes a `BaselineTrial`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.contract import Detection, Detector, Diagnoser, Diagnosis, Localizer, Ranking
from faultset.baselines.registry import BaselineSpec, get_baseline
from faultset.baselines.testing.episodes import (
    EMPTY,
    UNUSUAL_DATA,
    Edit,
    ReorderedView,
    build_context_renaming,
    build_renaming,
    read_times_ns,
    remove_rows,
    shift_times,
    with_column,
)
from faultset.baselines.testing.trial import Answer, BaselineTrial, alarm_time, labelled_faults
from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import TABLES

YEARS = {1999: 915_148_800, 2037: 2_114_380_800}
"""Year -> Unix time of its first second."""
CONSTANT_SERIES = 50
GAP_S = 12
AFTER_S = 10
"""Seconds after a gap in which an alarm counts as caused by the gap."""


def check_dates(trial: BaselineTrial) -> None:
    """Check that shifting the episode by whole seconds shifts the answer in time and changes nothing else."""
    for year, second in YEARS.items():
        start_ns = trial.examples.faulty.view.context.view_start_ns
        shift_ns = second * SECOND_NS - start_ns // SECOND_NS * SECOND_NS

        def shift_context(content: dict[str, Any], shift_ns: int = shift_ns) -> dict[str, Any]:
            names = ("view_start_ns", "view_end_ns", "reference_end_ns")
            return content | {name: content[name] + shift_ns for name in names}

        view = trial.examples.alter(f"in {year}", shift_times(shift_ns), context=shift_context)
        answer = trial.answer(view)
        if isinstance(answer, Detection):
            alarm_ns = None if answer.alarm_ns is None else answer.alarm_ns - shift_ns
            answer = replace(answer, times_ns=answer.times_ns - shift_ns, alarm_ns=alarm_ns)
        trial.assert_same(answer, f"with the episode in {year}")


def check_uninformative_series(trial: BaselineTrial) -> None:
    """Check that constant, missing and infinite series and counters below zero change no answer."""
    if "metrics" not in trial.spec.tables:
        return
    for name, series in UNINFORMATIVE.items():
        view = trial.examples.alter(f"with {name}", {"metrics": series})
        trial.assert_same(trial.answer(view), f"with {name} added")


def check_order_of_services(trial: BaselineTrial) -> None:
    """Check that an answer does not depend on the sort order of services.

    Stochastic methods are skipped, because the order decides which random numbers a service gets.
    """
    if trial.spec.stochastic or not trial.spec.tables:
        return
    names = trial.examples.reversed_names
    renamed = BaselineTrial(trial.spec, trial.examples.reversed_order())
    answer, expected = renamed.expected, trial.expected
    trial.assert_same(
        _remove_evidence(answer, {}), "with the order of services reversed", _remove_evidence(expected, names)
    )


def check_collector_gaps(trial: BaselineTrial) -> None:
    """Check that a gap in all metrics or in all tables raises no alarm during it or shortly after.

    Later alarms are ignored, because a detector that keeps learning has fewer samples to learn from.
    """
    if trial.spec.task != "detection" or not trial.spec.tables:
        return
    for item in trial.examples.training:
        if item.onset_ns is not None or trial.first_answer(item.view).alarm_ns is not None:  # type: ignore[union-attr]
            continue
        start_ns = item.view.reference[1] + 10 * SECOND_NS
        end_ns = start_ns + GAP_S * SECOND_NS
        gap = _remove_interval(start_ns, end_ns)
        edits = {
            "a gap in all metrics": {"metrics": gap},
            "a gap in all tables": dict.fromkeys(TABLES, gap),
        }
        for name, edit in edits.items():
            answer = trial.answer(trial.examples.alter(f"{name} of {item.view.episode}", edit, source=item.view))
            assert isinstance(answer, Detection)
            is_unaffected = answer.alarm_ns is None or answer.alarm_ns > end_ns + AFTER_S * SECOND_NS
            assert is_unaffected, f"{trial.spec.name}: {name} raises an alarm in an episode without a fault"


def _remove_interval(start_ns: int, end_ns: int) -> Edit:
    def edit(rows: pa.Table) -> pa.Table:
        times = read_times_ns(rows, "scheduled" if "scheduled" in rows.column_names else "time")
        return rows.filter(pa.array((times < start_ns) | (times >= end_ns)))

    return edit


def _remove_evidence(answer: Answer, names: dict[str, str]) -> Answer:
    """Rename services, and remove the evidence, which may be chosen by name among equal observations."""
    if isinstance(answer, Ranking):
        return Ranking(
            scores={names.get(service, service): score for service, score in sorted(answer.scores.items())},
            metrics={(names.get(service, service), name): score for (service, name), score in answer.metrics.items()},
            pods={_rename_pod(pod, names): score for pod, score in answer.pods.items()},
            confidence=answer.confidence,
        )
    if isinstance(answer, Detection | Diagnosis):
        return replace(answer, evidence=())
    return answer


def _rename_pod(pod: str, names: dict[str, str]) -> str:
    service = next((name for name in names if pod.startswith(f"{name}-")), None)
    return pod if service is None else names[service] + pod.removeprefix(service)


def _add_series(kind: str, values: Any, count: int = 1) -> Edit:
    """Return an edit that adds series to every service, with the times of its existing samples."""

    def edit(rows: pa.Table) -> pa.Table:
        metric = rows["metric"][0]
        series = rows.filter(pc.equal(rows["metric"].cast(pa.string()), metric.as_py()))  # type: ignore[attr-defined]
        parts = [rows]
        for number in range(count):
            name = METRIC_NAMES[number % len(METRIC_NAMES)].format(number)
            for column, text in (("metric", name), ("kind", kind), ("labels", "{}")):
                words = pa.array([text] * len(series)).cast(series[column].type)
                series = with_column(series, column, words)
            parts.append(with_column(series, "value", pa.array(values(len(series)))))
        return pa.concat_tables(parts, promote_options="permissive").cast(rows.schema)

    return edit


METRIC_NAMES = (
    "setting_{}",
    "container_cpu_share_{}",
    "container_memory_share_{}_bytes",
    "http_server_duration_{}_seconds",
    "queue_length_{}",
)
"""Names of added metrics, with several roles and without a role."""


def _build_infinite_values(count: int) -> np.ndarray:
    values = np.full(count, 7.0)
    values[::9] = np.inf
    return values


UNINFORMATIVE = {
    "fifty constant series": _add_series("gauge", lambda count: np.full(count, 7.0), CONSTANT_SERIES),
    "a series without samples": _add_series("gauge", lambda count: np.full(count, np.nan)),
    "a constant series with infinities": _add_series("gauge", _build_infinite_values),
    "a counter below zero": _add_series("counter", lambda count: -1.0 - np.arange(count, dtype=float)),
}
"""Description -> edit that adds the series."""


def check_no_look_ahead(trial: BaselineTrial) -> None:
    """Check that a detector's answer up to `t` does not depend on later data."""
    if trial.spec.task != "detection":
        return
    cut_ns = alarm_time(trial.examples.faulty.view) + SECOND_NS // 3
    full = trial.expected
    cut = trial.examples.alter(f"cut at {cut_ns}", {name: _cut_before(name, cut_ns) for name in TABLES})
    short = trial.answer(cut)
    assert isinstance(full, Detection)
    assert isinstance(short, Detection)
    count = int((full.times_ns <= cut_ns).sum())
    is_same = (
        count > 10
        and np.array_equal(full.times_ns[:count], short.times_ns[:count])
        and np.allclose(full.scores[:count], short.scores[:count], rtol=1e-7, atol=0)
        and np.array_equal(full.flags[:count], short.flags[:count])
    )
    assert is_same, f"{trial.spec.name}: later data change earlier scores"


def _cut_before(name: str, cut_ns: int) -> Edit:
    def edit(rows: pa.Table) -> pa.Table:
        times = read_times_ns(rows, "scheduled" if name == "requests" else "time")
        if name == "requests":
            # At the cut, a request that was answered later is unfinished.
            latency = rows["latency_ns"].to_numpy()
            late = times + latency > cut_ns
            outcome = np.where(late, "unfinished", np.array(rows["outcome"].to_pylist(), dtype=object))
            rows = with_column(rows, "latency_ns", pa.array(latency, pa.int64(), mask=late))
            rows = with_column(rows, "outcome", pa.array(outcome, pa.string()))
        return rows.filter(pa.array(times < cut_ns))

    return edit


def check_coverage(trial: BaselineTrial) -> None:
    """Check that a detector's samples cover the view after the reference at its resolution."""
    if trial.spec.task != "detection":
        return
    view, result = trial.examples.faulty.view, trial.expected
    assert isinstance(result, Detection)
    step = round(view.context.resolution_s * SECOND_NS)
    times = result.times_ns
    assert len(times), f"{trial.spec.name}: no samples for an episode with telemetry"
    covered = times[0] <= view.reference[1] + 2 * step and times[-1] > view.window[1] - step
    assert covered, f"{trial.spec.name}: samples must reach from the reference to the end of the view"
    assert (np.diff(times) <= step).all(), f"{trial.spec.name}: two samples are more than a step apart"


def check_detection_accuracy(trial: BaselineTrial) -> None:
    """Check that scores are higher after the onset and that most answers are right."""
    if trial.spec.task != "detection" or not trial.spec.tables:
        return
    right = 0
    for item in trial.examples.training:
        answer = trial.first_answer(item.view)
        assert isinstance(answer, Detection)
        if item.onset_ns is None:
            right += answer.alarm_ns is None
            continue
        right += answer.alarm_ns is not None and answer.alarm_ns > item.onset_ns
        late = answer.times_ns > item.onset_ns
        higher = answer.scores[late].mean() > answer.scores[~late].mean()
        assert higher, f"{trial.spec.name}: scores are not higher after the onset; higher must mean more anomalous"
    count = len(trial.examples.training)
    assert right > count / 2, f"{trial.spec.name}: only {right} of {count} answers are right, no better than guessing"


def check_localization_accuracy(trial: BaselineTrial) -> None:
    """Check that the mean rank of the cause is better than chance, unless the localizer always abstains."""
    if trial.spec.task != "localization" or not trial.spec.tables:
        return
    ranks: list[float] = []
    answered = False
    candidates = len(trial.examples.faulty.view.services)
    for item in labelled_faults(trial.examples):
        assert item.onset_ns is not None
        answer = trial.fitted().localize(item.view, item.onset_ns + 4 * SECOND_NS)
        assert isinstance(answer, Ranking)
        answered |= not answer.abstains
        order = answer.ordered
        ranks.append(order.index(item.service) + 1 if item.service in order else (len(order) + 1 + candidates) / 2)
    better = float(np.mean(ranks)) < (candidates + 1) / 2
    assert better or not answered, (
        f"{trial.spec.name}: ranks {ranks} of the cause among {candidates} are no better than chance"
    )


def check_trained_answers(trial: BaselineTrial) -> None:
    """Check that a diagnoser answers with a pair from its training."""
    if trial.spec.task != "rca":
        return
    answer = trial.expected
    assert isinstance(answer, Diagnosis)
    pair = (answer.system_level, answer.fault_type)
    pairs = {(item.system_level, item.fault_type) for item in labelled_faults(trial.examples)}
    assert pair in pairs, f"{trial.spec.name}: answers {pair}, which is not among its training pairs"


def check_untrained(trial: BaselineTrial) -> None:
    """Check that a diagnoser without training faults abstains."""
    if trial.spec.task != "rca":
        return
    healthy = [item for item in trial.examples.training if item.fault_type is None]
    for training in ([], healthy):
        diagnoser = trial.spec.build()
        answer = trial.answer(trial.examples.faulty.view, diagnoser.fit(training))  # type: ignore[arg-type]
        assert isinstance(answer, Diagnosis)
        assert answer.abstains, f"{trial.spec.name}: must abstain without training faults, got {answer}"


def check_service_names(trial: BaselineTrial) -> None:
    """Check that a diagnoser does not depend on the names of services."""
    if trial.spec.task != "rca":
        return

    names = {name: f"x-{name}" for name in trial.examples.faulty.view.services}
    edits = dict.fromkeys(TABLES, build_renaming(names))
    view = trial.examples.alter("services renamed", edits, context=build_context_renaming(names))
    answer = trial.answer(view)
    expected = trial.expected
    assert isinstance(answer, Diagnosis)
    assert isinstance(expected, Diagnosis)
    is_same = (answer.system_level, answer.fault_type) == (expected.system_level, expected.fault_type)
    is_same &= abs(answer.confidence - expected.confidence) < 1e-6
    assert is_same, f"{trial.spec.name}: with renamed services it answers {answer} instead of {expected}"


_PROTOCOLS: dict[str, type] = {"detection": Detector, "localization": Localizer, "rca": Diagnoser}


def check_registration(trial: BaselineTrial) -> None:
    """Check that the registration is complete and agrees with the instance."""
    spec = trial.spec
    instance = spec.build()
    rules = {
        f"an instance is a {_PROTOCOLS[spec.task].__name__}": isinstance(instance, _PROTOCOLS[spec.task]),
        "its class has a docstring": bool((spec.factory.__doc__ or "").strip()),
        "title and paper are not empty": bool(spec.title and spec.paper),
        "complexity is empty or begins with O(": not spec.complexity or spec.complexity.startswith("O("),
        f"tables are among {sorted(TABLES)}": set(spec.tables) <= TABLES.keys(),
        "required tables are a subset of its tables": set(spec.requires) <= set(spec.tables),
        'tables contains requests if and only if needs contains "sli"': ("sli" in spec.needs)
        == ("requests" in spec.tables),
        "departures are sentences": all(sentence.endswith(".") for sentence in spec.departures),
        "an instance has the registered name, needs and tables": (instance.name, instance.needs, instance.tables)
        == (spec.name, spec.needs, spec.tables),
    }
    for rule, is_met in rules.items():
        assert is_met, f"{spec.name}: broken rule: {rule}"


def check_seed(trial: BaselineTrial) -> None:
    """Check that a stochastic baseline stores its seed."""
    instance = trial.spec.build(seed=7)
    if trial.spec.stochastic:
        seed = getattr(instance, "seed", None)
        assert seed == 7, f'{trial.spec.name}: built with seed 7, but its attribute "seed" is {seed}'


def check_repeatability(trial: BaselineTrial) -> None:
    """Check that the same seed gives the same answers, independent of earlier episodes."""
    view = trial.examples.faulty.view
    trial.assert_valid(trial.expected, view, "an episode with a fault")
    instance = trial.fitted()
    trial.answer(next(item.view for item in trial.examples.training if item is not trial.examples.faulty), instance)
    trial.assert_same(trial.answer(view, instance), "after another episode")


def check_inputs(trial: BaselineTrial) -> None:
    """Check that frames are not changed and that the order of columns does not matter."""
    path = trial.examples.path(trial.examples.faulty.view)
    view = ReorderedView(path, seed=3)
    trial.assert_same(trial.answer(view), "with reordered columns")
    for (step_s, roles), frame in view.frames.items():
        unchanged = frame.equals(ReorderedView(path, seed=3).wide(step_s, roles))
        assert unchanged, f"{trial.spec.name}: changes the frame of wide(step_s={step_s}); copy it first"


def check_pickling(trial: BaselineTrial) -> None:
    """Check that the fitted baseline, its answers and its spec can be pickled."""
    # The expected answer comes from a pickled copy.
    answer = trial.answer(pickle.loads(pickle.dumps(trial.examples.faulty.view)), trial.original)
    trial.assert_same(pickle.loads(pickle.dumps(answer)), "after pickling")
    assert pickle.loads(pickle.dumps(trial.spec)) == trial.spec, f"{trial.spec.name}: pickling changes its spec"


def check_declared_tables(trial: BaselineTrial) -> None:
    """Check that only declared tables are read."""
    assert trial.expected is not None
    missing = ", ".join(sorted(trial.undeclared))
    argument = "needs" if trial.undeclared == {"alarm_location"} else "tables"
    assert not trial.undeclared, f"{trial.spec.name}: reads {missing}; add that to {argument}"


def check_missing_tables(trial: BaselineTrial) -> None:
    """Check answers with each declared table missing or empty."""
    for table in trial.spec.tables:
        for edit, circumstance in ((lambda rows: None, "missing"), (remove_rows, "empty")):
            view = trial.examples.alter(f"table {table} {circumstance}", {table: edit})
            trial.assert_valid(trial.answer(view), view, f"table {table} {circumstance}")


def check_no_evidence(trial: BaselineTrial) -> None:
    """Check that a baseline with tables abstains if all tables are empty."""
    view = trial.examples.alter("no rows", EMPTY)
    answer = trial.answer(view)
    trial.assert_valid(answer, view, "no table has a row")
    silent = answer.alarm_ns is None if isinstance(answer, Detection) else answer.abstains
    assert silent or not trial.spec.tables, f"{trial.spec.name}: must abstain if all tables are empty, got {answer}"


def check_unusual_data(trial: BaselineTrial) -> None:
    """Check answers with constant series, single samples, gaps, unknown services and invalid states."""
    for circumstance, edits in UNUSUAL_DATA.items():
        if edits.keys() & {*trial.spec.tables}:
            view = trial.examples.alter(circumstance, edits)
            trial.assert_valid(trial.answer(view), view, circumstance)


def check_single_candidate(trial: BaselineTrial) -> None:
    """Check the answer for an episode with one candidate."""
    overrides = {"services": ["geo"], "calls": [], "workload_entry": "geo"}
    view = trial.examples.alter("single candidate", {}, context=lambda content: content | overrides)
    trial.assert_valid(trial.answer(view), view, "a single candidate")


Check = Callable[[BaselineTrial], None]
CHECKS: Mapping[str, Check] = {
    "registration": check_registration,
    "seed": check_seed,
    "repeatability": check_repeatability,
    "inputs": check_inputs,
    "pickling": check_pickling,
    "declared tables": check_declared_tables,
    "missing tables": check_missing_tables,
    "no evidence": check_no_evidence,
    "unusual data": check_unusual_data,
    "single candidate": check_single_candidate,
    "no look-ahead": check_no_look_ahead,
    "coverage": check_coverage,
    "detection accuracy": check_detection_accuracy,
    "localization accuracy": check_localization_accuracy,
    "trained answers": check_trained_answers,
    "untrained": check_untrained,
    "service names": check_service_names,
    "dates": check_dates,
    "uninformative series": check_uninformative_series,
    "order of services": check_order_of_services,
    "collector gaps": check_collector_gaps,
}
"""Name -> check; a check for another task does nothing."""


def check_baseline(baseline: str | type | BaselineSpec, *, skip: Iterable[str] = ()) -> None:
    """Check that a baseline fulfils the contract; every answer comes from a fitted instance.

    The checks use a synthetic dataset of six episodes in a temporary folder, written once per process.

    Parameters
    ----------
    baseline
        Name of an installed baseline, a class decorated with `faultset.baselines.baseline`, or its spec.
    skip
        Names of checks (keys of `CHECKS`) to skip, for instance `localization accuracy` if the synthetic faults have
        none of the signs that the baseline uses.

    Raises
    ------
    AssertionError
        A check failed; the message has the expected and the actual result.
    UsageError
        The baseline or a check is unknown.

    Notes
    -----
    `CHECKS` maps names to checks; the docstring of each check says what it requires.
    """
    spec = get_baseline(baseline) if isinstance(baseline, str) else getattr(baseline, "spec", baseline)
    if not isinstance(spec, BaselineSpec):
        raise UsageError(f"{baseline!r} is not a baseline; decorate its class with faultset.baselines.baseline")
    left_out = set(skip)
    if left_out - CHECKS.keys():
        raise UsageError(f"unknown checks {sorted(left_out - CHECKS.keys())}; choose from {list(CHECKS)}")
    trial = BaselineTrial(spec)
    for name, check in CHECKS.items():
        if name not in left_out:
            check(trial)
