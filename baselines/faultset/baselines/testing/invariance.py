"""Checks that an answer does not depend on what says nothing: the date, empty series, names, gaps of the collector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.api.contract import Detection, Diagnosis, Ranking
from faultset.baselines.testing.episodes import Edit, instants, moved_times, with_column
from faultset.baselines.testing.trial import Answer, BaselineTrial
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import TABLES

YEARS = {1999: 915_148_800, 2037: 2_114_380_800}
"""Year -> seconds since 1970 at its beginning."""
CONSTANTS = 50
GAP_S = 12
AFTER_S = 10
"""Seconds after a gap in which it may still raise an alarm."""


def check_dates(trial: BaselineTrial) -> None:
    """An answer is the same, at other times, when the whole episode is moved by whole seconds."""
    for year, second in YEARS.items():
        start_ns = trial.examples.faulty.view.context.view_start_ns
        shift_ns = second * SECOND_NS - start_ns // SECOND_NS * SECOND_NS

        def moved(known: dict[str, Any], shift_ns: int = shift_ns) -> dict[str, Any]:
            names = ("view_start_ns", "view_end_ns", "reference_end_ns")
            return known | {name: known[name] + shift_ns for name in names}

        view = trial.examples.altered(f"in {year}", moved_times(shift_ns), context=moved)
        answer = trial.answer(view)
        if isinstance(answer, Detection):
            alarm_ns = None if answer.alarm_ns is None else answer.alarm_ns - shift_ns
            answer = replace(answer, times_ns=answer.times_ns - shift_ns, alarm_ns=alarm_ns)
        trial.assert_same(answer, f"with the episode in {year}")


def check_uninformative_series(trial: BaselineTrial) -> None:
    """Constant, missing and infinite series, and counters below zero, change no answer."""
    if "metrics" not in trial.spec.tables:
        return
    for name, series in UNINFORMATIVE.items():
        view = trial.examples.altered(f"with {name}", {"metrics": series})
        trial.assert_same(trial.answer(view), f"with {name} added")


def check_order_of_services(trial: BaselineTrial) -> None:
    """An answer follows the services when they are renamed so that their order is reversed.

    What draws random numbers draws them in some order, so only methods that declare no seed are asked.
    """
    if trial.spec.stochastic or not trial.spec.tables:
        return
    names = trial.examples.reversed_names
    renamed = BaselineTrial(trial.spec, trial.examples.reversed_order())
    answer, expected = renamed.expected, trial.expected
    trial.assert_same(_bare(answer, {}), "with the order of services reversed", _bare(expected, names))


def check_collector_gaps(trial: BaselineTrial) -> None:
    """A gap in all metrics or in all tables raises no alarm, in it or shortly after it.

    Later alarms are not looked at: a detector that goes on learning has learned less.
    """
    if trial.spec.task != "detection" or not trial.spec.tables:
        return
    for item in trial.examples.training:
        if item.onset_ns is not None or trial.first_answer(item.view).alarm_ns is not None:  # type: ignore[union-attr]
            continue
        start_ns = item.view.reference[1] + 10 * SECOND_NS
        end_ns = start_ns + GAP_S * SECOND_NS
        gap = _without(start_ns, end_ns)
        edits = {
            "a gap in all metrics": {"metrics": gap},
            "a gap in all tables": dict.fromkeys(TABLES, gap),
        }
        for name, edit in edits.items():
            answer = trial.answer(trial.examples.altered(f"{name} of {item.view.episode}", edit, of=item.view))
            assert isinstance(answer, Detection)
            late = answer.alarm_ns is None or answer.alarm_ns > end_ns + AFTER_S * SECOND_NS
            assert late, f"{trial.spec.name}: {name} raises an alarm in an episode without a fault"


def _without(start_ns: int, end_ns: int) -> Edit:
    def edit(rows: pa.Table) -> pa.Table:
        times = instants(rows, "scheduled" if "scheduled" in rows.column_names else "time")
        return rows.filter(pa.array((times < start_ns) | (times >= end_ns)))

    return edit


def _bare(answer: Answer, names: dict[str, str]) -> Answer:
    """Rename services, and leave out evidence: which of equal observations are reported may depend on names."""
    if isinstance(answer, Ranking):
        return Ranking(
            scores={names.get(service, service): score for service, score in sorted(answer.scores.items())},
            metrics={(names.get(service, service), name): score for (service, name), score in answer.metrics.items()},
            pods={_renamed_pod(pod, names): score for pod, score in answer.pods.items()},
            confidence=answer.confidence,
        )
    if isinstance(answer, Detection | Diagnosis):
        return replace(answer, evidence=())
    return answer


def _renamed_pod(pod: str, names: dict[str, str]) -> str:
    service = next((name for name in names if pod.startswith(f"{name}-")), None)
    return pod if service is None else names[service] + pod.removeprefix(service)


def _added(kind: str, values: Any, count: int = 1) -> Edit:
    """Return an edit that adds series to every service, with the times of one that it has."""

    def edit(rows: pa.Table) -> pa.Table:
        metric = rows["metric"][0]
        like = rows.filter(pc.equal(rows["metric"].cast(pa.string()), metric.as_py()))  # type: ignore[attr-defined]
        parts = [rows]
        for number in range(count):
            name = ROLES[number % len(ROLES)].format(number)
            for column, text in (("metric", name), ("kind", kind), ("labels", "{}")):
                words = pa.array([text] * len(like)).cast(like[column].type)
                like = with_column(like, column, words)
            parts.append(with_column(like, "value", pa.array(values(len(like)))))
        return pa.concat_tables(parts, promote_options="permissive").cast(rows.schema)

    return edit


ROLES = (
    "setting_{}",
    "container_cpu_share_{}",
    "container_memory_share_{}_bytes",
    "http_server_duration_{}_seconds",
    "queue_length_{}",
)
"""Names of added series: metrics of several roles, and of none."""


def _infinite(count: int) -> np.ndarray:
    values = np.full(count, 7.0)
    values[::9] = np.inf
    return values


UNINFORMATIVE = {
    "fifty constant series": _added("gauge", lambda count: np.full(count, 7.0), CONSTANTS),
    "a series without samples": _added("gauge", lambda count: np.full(count, np.nan)),
    "a constant series with infinities": _added("gauge", _infinite),
    "a counter below zero": _added("counter", lambda count: -1.0 - np.arange(count, dtype=float)),
}
"""What is added -> the edit of the metrics."""
