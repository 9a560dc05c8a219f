"""Describe how the telemetry and objects of services changed since an alarm, in sentences with numbers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.baselines.features.calls import CallSeries, name_codes, read_call_series
from faultset.baselines.features.evidence import count_evidence
from faultset.baselines.features.object_states import (
    SAMPLING_NS,
    ObjectHistory,
    find_signs,
    object_histories,
    parse_state,
    read_object_states,
    read_specification,
)
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, sustained, with_metric_floor
from faultset.core.printable import brief, count_text, printable, size_text
from faultset.core.times import SECOND_NS, duration_text
from faultset.datasets.explorer.records import flat_fields
from faultset.datasets.log_masks import mask_column
from faultset.datasets.metrics.roles import MetricRole
from faultset.datasets.views import read_frame, read_table
from faultset.evaluators.diagnosis.records import Observation
from faultset.evaluators.diagnosis.text import clock_text

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


Flags = npt.NDArray[np.bool_]
MAX_OBSERVATIONS = 4
"""Maximum number of observations per service."""
MIN_SIGMAS = 3.0
MINOR = frozenset({"threads", "descriptors"})
"""Roles that are shown after all others, since they jump in whole numbers."""
LASTING_STEPS = 3
"""Number of steps for which a metric must deviate."""
MIN_STRENGTH = 1.0
"""Smallest reported strength of counts, in powers of ten."""
SMALL_SHARE = 0.5
"""Calls and log lines are reported as missing below this share of their expected number."""
MIN_EXPECTED = 5.0
"""Smallest expected number of calls or log lines that can be reported as missing."""
_TEMPLATE_LENGTH = 70


def observe_changes(view: EpisodeView, moment_ns: int, services: Sequence[str]) -> dict[str, tuple[Observation, ...]]:
    """Return the strongest observations about each service, of different kinds if possible, in time order.

    `moment_ns`: time of the alarm, UTC nanoseconds. Telemetry since then is compared with the reference before it.
    `services`: names of services.
    """
    observations = [
        *observe_objects(view, moment_ns, services),
        *observe_metrics(view, moment_ns, services),
        *observe_log_lines(view, moment_ns, services),
        *observe_calls(view, moment_ns, services),
    ]
    return {name: select_observations(item for item in observations if item.service == name) for name in services}


def select_observations(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """Return up to `MAX_OBSERVATIONS`: the strongest of each kind, then the second of each kind; sorted by time."""
    by_kind: dict[str, int] = {}
    ranked = []
    for item in sorted(observations, key=lambda item: -item.strength):
        by_kind[item.kind] = by_kind.get(item.kind, 0) + 1
        ranked.append((by_kind[item.kind], item))
    chosen = [item for _, item in sorted(ranked, key=lambda pair: pair[0])[:MAX_OBSERVATIONS]]
    return tuple(sorted(chosen, key=lambda item: item.time_ns))


def observe_metrics(view: EpisodeView, moment_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return the metric of each role that left its healthy range farthest, and services whose metrics stopped."""
    step_ns = round(view.context.resolution_s * SECOND_NS)
    gap = max(0, moment_ns - view.reference[1])
    windows = localization_windows(view, moment_ns, before=max(1, math.ceil(gap / step_ns)))
    is_recent = windows.times_ns > moment_ns - 2 * step_ns
    if windows.empty or len(windows.reference) < 2 or not is_recent.any():
        return []
    mean, sd = mean_and_sd(windows.reference, ddof=1)
    scale = with_metric_floor(sd, windows.series)
    never_absent = np.zeros(windows.values.shape, dtype=bool)
    z = deviations(windows.values, mean, scale, never_absent)
    usual = np.abs(deviations(windows.reference, mean, scale, np.zeros(windows.reference.shape, dtype=bool)))
    highest = usual.max(axis=0)
    lasting = np.where(is_recent[:, None], sustained(z, min(LASTING_STEPS, len(z))), 0.0)
    stopped = _observe_stopped_metrics(view, windows, services)
    silent = {item.service for item in stopped}
    best: dict[tuple[str, str], tuple[float, int]] = {}
    for column, (service, metric) in enumerate(windows.series):
        peak = float(lasting[:, column].max())
        if service not in services or service in silent or peak <= max(MIN_SIGMAS, float(highest[column])):
            continue
        key = service, view.catalogue.role_of(metric)
        if peak > best.get(key, (0.0, 0))[0]:
            best[key] = peak, column
    return stopped + [
        _describe_metric(view, windows, column, z[:, column], float(mean[column]), float(highest[column]))
        for _, column in best.values()
        if np.isfinite(windows.values[:, column]).any()
    ]


def _describe_metric(
    view: EpisodeView, windows: Windows, column: int, z: Matrix, before: float, highest: float
) -> Observation:
    """Describe how a series left its healthy range: the run of steps with the largest deviation."""
    service, metric = windows.series[column]
    lasting = sustained(z[:, None], min(LASTING_STEPS, len(z)))[:, 0]
    peak = int(lasting.argmax())
    first, last = _find_run_around(np.abs(z) > max(MIN_SIGMAS, highest), peak)
    after = float(np.nanmedian(windows.values[first : last + 1, column]))
    time_ns = int(windows.times_ns[first]) - windows.step_ns
    verb = "rose" if after > before else "fell"
    size = float(lasting[peak])
    amounts = _format_amounts((before, after), view.catalogue.find(metric))
    return Observation(
        service=service,
        kind="metric",
        subject=metric,
        time_ns=time_ns,
        strength=size / 1e6 if view.catalogue.role_of(metric) in MINOR else size,
        text=f"{printable(metric)} {verb} from {amounts[0]} to {amounts[1]} at {clock_text(time_ns, view.window)}, "
        f"{_describe_deviation(size, highest)}",
    )


def _find_run_around(outside: Flags, peak: int) -> tuple[int, int]:
    """Return the first and last step of the run of flags that contains a step."""
    first = last = peak
    while first > 0 and outside[first - 1]:
        first -= 1
    while last + 1 < len(outside) and outside[last + 1]:
        last += 1
    return first, last


def _format_amounts(values: tuple[float, float], row: MetricRole | None) -> list[str]:
    """Return two values as texts that differ; sizes have their unit, counters are rates per second."""
    is_size = row is not None and row.unit == "By"
    texts = [size_text(value) if is_size and value >= 1000 else f"{value:.3g}" for value in values]
    if texts[0] == texts[1]:
        texts = [f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.9g}" for value in values]
        texts = [f"{text} bytes" for text in texts] if is_size else texts
    return [f"{text}/s" for text in texts] if row is not None and row.kind == "counter" else texts


def _describe_deviation(size: float, highest: float) -> str:
    usual = f"at most {highest:.1f} before" if highest >= 0.05 else "constant before"  # rounds to 0.1
    return f"{size:.0f} healthy spreads, {usual}"


def _observe_stopped_metrics(view: EpisodeView, windows: Windows, services: Sequence[str]) -> list[Observation]:
    """Return an observation for each service whose series have mostly stopped."""
    is_gone = windows.absent[-1] if len(windows.absent) else np.zeros(0, dtype=bool)
    owners = np.array(windows.services)
    observations = []
    for service in services:
        columns = np.flatnonzero(owners == service)
        stopped = columns[is_gone[columns]]
        if not len(columns) or 2 * len(stopped) <= len(columns):
            continue
        first = int(np.argmax(windows.absent[:, stopped].mean(axis=1) > SMALL_SHARE))
        time_ns = int(windows.times_ns[first]) - windows.step_ns
        text = f"{len(stopped)} of {count_text(len(columns), 'metric')} stopped by {clock_text(time_ns, view.window)}"
        observations.append(
            Observation(
                service=service, kind="metric", subject="all metrics", time_ns=time_ns, strength=np.inf, text=text
            )
        )
    return observations


def observe_log_lines(view: EpisodeView, moment_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return, for each service, the template with the strongest evidence of an increase, and missing lines."""
    names = tuple(services)
    table = read_table(view, "logs", ("time", "service", "level", "message"))
    owner = name_codes(table["service"], names)
    table, owner = table.filter(pa.array(owner >= 0)), owner[owner >= 0]
    if not len(table):
        return []
    texts = mask_column(table["message"]).combine_chunks().dictionary_encode()
    code = texts.indices.to_numpy()
    times = table["time"].cast(pa.int64()).to_numpy()
    seconds = _measure_compared_seconds(view, moment_ns)
    healthy = times < min(view.reference[1], moment_ns)
    is_recent = times >= moment_ns
    observations = []
    for number, service in enumerate(names):
        rows = owner == number
        before = np.bincount(code[rows & healthy], minlength=len(texts.dictionary)).astype(float)
        after = np.bincount(code[rows & is_recent], minlength=len(texts.dictionary)).astype(float)
        kinds = max(1, int(((before + after) > 0).sum()))
        strength = count_evidence(before, after, *seconds) - np.log10(kinds)
        best = int(strength.argmax())
        if strength[best] >= MIN_STRENGTH:
            lines = np.flatnonzero(rows & (code == best) & ~healthy)
            first_ns = int(times[lines].min()) if before[best] == 0 else moment_ns
            level = table["level"][int(lines[0])].as_py() or "log"
            text = brief(printable(texts.dictionary[best].as_py().strip()), _TEMPLATE_LENGTH)
            summary = (
                f'{after[best]:.0f} {level} {_choose_plural(after[best])} "{text}" {_format_since(view, first_ns)}'
            )
            observations.append(
                Observation(
                    service=service,
                    kind="log lines",
                    subject=text,
                    time_ns=first_ns,
                    strength=float(strength[best]),
                    text=f"{summary}, {_describe_reference(before[best], seconds[0])}",
                )
            )
        observations += _observe_missing_lines(view, moment_ns, service, float(before.sum()), float(after.sum()))
    return observations


def _observe_missing_lines(
    view: EpisodeView, moment_ns: int, service: str, before: float, after: float
) -> list[Observation]:
    before_s, after_s = _measure_compared_seconds(view, moment_ns)
    expected = before * after_s / before_s
    if expected < MIN_EXPECTED or after >= SMALL_SHARE * expected:
        return []
    strength = -float(count_evidence(np.array([before]), np.array([after]), before_s, after_s)[0])
    if strength < MIN_STRENGTH:
        return []
    text = (
        f"{after:.0f} log {_choose_plural(after)} {_format_since(view, moment_ns)}, where {expected:.0f} were expected"
    )
    return [
        Observation(
            service=service, kind="log lines", subject="all lines", time_ns=moment_ns, strength=strength, text=text
        )
    ]


def observe_calls(view: EpisodeView, moment_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return how calls to each service changed: failures, duration, number."""
    series = read_call_series(view)
    ends = series.starts_ns + series.step_ns
    healthy = ends <= min(view.reference[1], moment_ns)
    is_recent = ends > moment_ns
    if not series.services or healthy.sum() < 2 or not is_recent.any():
        return []
    observations = []
    for column, service in enumerate(series.services):
        if service in services:
            observations += _observe_failures(view, series, column, healthy, is_recent)
            observations += _observe_durations(view, series, column, healthy, is_recent)
            observations += _observe_fewer_calls(view, series, column, healthy, is_recent)
    return observations


def _observe_failures(
    view: EpisodeView, series: CallSeries, column: int, healthy: Flags, is_recent: Flags
) -> list[Observation]:
    calls, errors = series.calls[:, column], series.errors[:, column]
    all_before, all_after = float(calls[healthy].sum()), float(calls[is_recent].sum())
    before, after = float(errors[healthy].sum()), float(errors[is_recent].sum())
    if not all_after or after == 0:
        return []
    strength = float(count_evidence(np.array([before]), np.array([after]), max(all_before, 1.0), all_after)[0])
    if strength < MIN_STRENGTH:
        return []
    time_ns = int(series.starts_ns[is_recent & (errors > 0)][0])
    text = (
        f"{after:.0f} of {all_after:.0f} calls to it failed {_format_since(view, time_ns)}, "
        f"{before:.0f} of {all_before:.0f} in the reference"
    )
    return [_build_call_observation(series, column, time_ns, strength, text)]


def _observe_durations(
    view: EpisodeView, series: CallSeries, column: int, healthy: Flags, is_recent: Flags
) -> list[Observation]:
    seconds = series.seconds[:, [column]]
    if np.isfinite(seconds[healthy]).sum() < 2 or not np.isfinite(seconds[is_recent]).any():
        return []
    mean, sd = mean_and_sd(seconds[healthy], ddof=1)
    z = deviations(seconds, mean, sd, np.zeros(seconds.shape, dtype=bool))
    highest = float(np.abs(z[healthy]).max())
    lasting = sustained(z[is_recent], min(LASTING_STEPS, int(is_recent.sum())))[:, 0]
    size = float(lasting.max())
    if size <= max(MIN_SIGMAS, highest):
        return []
    # A step without calls does not end a run of slow ones.
    outside = (np.abs(z[:, 0]) > max(MIN_SIGMAS, highest)) | ~np.isfinite(seconds[:, 0])
    first, last = _find_run_around(outside, int(np.flatnonzero(is_recent)[lasting.argmax()]))
    first += int(np.isfinite(seconds[first : last + 1, 0]).argmax())
    time_ns = int(series.starts_ns[first])
    after, before = 1e3 * float(np.nanmedian(seconds[first : last + 1])), 1e3 * float(mean[0])  # milliseconds
    text = (
        f"calls to it took {_format_milliseconds(after)} instead of {_format_milliseconds(before)} "
        f"{_format_since(view, time_ns)}, {_describe_deviation(size, highest)}"
    )
    return [_build_call_observation(series, column, time_ns, math.log10(size), text)]


def _format_milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value >= 100 else f"{value:.2g} ms"


def _observe_fewer_calls(
    view: EpisodeView, series: CallSeries, column: int, healthy: Flags, is_recent: Flags
) -> list[Observation]:
    calls = series.calls[:, column]
    before_s, after_s = (float(steps.sum()) * series.step_ns / SECOND_NS for steps in (healthy, is_recent))
    before, after = float(calls[healthy].sum()), float(calls[is_recent].sum())
    expected = before * after_s / before_s
    if expected < MIN_EXPECTED or after >= SMALL_SHARE * expected:
        return []
    strength = -float(count_evidence(np.array([before]), np.array([after]), before_s, after_s)[0])
    time_ns = int(series.starts_ns[is_recent][0])
    text = (
        f"{after / after_s:.2g} calls to it per second {_format_since(view, time_ns)}, "
        f"{before / before_s:.2g} in the reference"
    )
    return [_build_call_observation(series, column, time_ns, strength, text)] if strength >= MIN_STRENGTH else []


def _build_call_observation(series: CallSeries, column: int, time_ns: int, strength: float, text: str) -> Observation:
    return Observation(
        service=series.services[column], kind="calls", subject="calls", time_ns=time_ns, strength=strength, text=text
    )


def _measure_compared_seconds(view: EpisodeView, moment_ns: int) -> tuple[float, float]:
    """Return the seconds of the reference before the alarm, and of the view after it."""
    start_ns, end_ns = view.reference[0], min(view.reference[1], moment_ns)
    return max(1, end_ns - start_ns) / SECOND_NS, max(1, view.window[1] - moment_ns) / SECOND_NS


def _format_since(view: EpisodeView, time_ns: int) -> str:
    return f"since {clock_text(time_ns, view.window)}"


def _choose_plural(count: float) -> str:
    return "line" if count == 1 else "lines"


def _describe_reference(before: float, seconds: float) -> str:
    return f"{'none' if not before else f'{before:.0f}'} in the reference of {duration_text(seconds)}"


_SPECIFICATION, _SIGN, _EVENT = 3.0, 2.0, 1.0
"""Strengths: a changed specification comes before its effects, and both before events."""
_VALUE_LENGTH = 40


def observe_objects(view: EpisodeView, moment_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return changes of specifications, signs of trouble, and warnings after the healthy reference."""
    healthy_end_ns = min(view.reference[1], moment_ns)
    frame = read_object_states(view)
    observations: list[Observation] = []
    for history in object_histories(frame[frame["service"].isin(services)]):
        observations += _observe_specification_change(view, history, healthy_end_ns)
        observations += _observe_new_signs(view, history, healthy_end_ns)
    return observations + _observe_warnings(view, healthy_end_ns, services)


def _observe_specification_change(view: EpisodeView, history: ObjectHistory, healthy_end_ns: int) -> list[Observation]:
    """Return the last change of the specification after the reference."""
    states = [read_specification(history.kind, parse_state(text)) or {} for text in history.texts]
    for position in range(len(states) - 1, 0, -1):
        time_ns = history.times_ns[position]
        if time_ns < healthy_end_ns:
            break
        old, new = (flat_fields("", state) for state in states[position - 1 : position + 1])
        fields = [name for name in new.keys() | old.keys() if name != "generation" and old.get(name) != new.get(name)]
        if fields:
            changes = ", ".join(
                f"{name} from {_format_value(old.get(name))} to {_format_value(new.get(name))}"
                for name in sorted(fields)
            )
            text = f"{changes} at {clock_text(time_ns, view.window)}"
            return [_build_observation(history, time_ns, _SPECIFICATION, text)]
    return []


def _observe_new_signs(view: EpisodeView, history: ObjectHistory, healthy_end_ns: int) -> list[Observation]:
    """Return the most frequent sign of trouble that the object did not have in the reference, or its disappearance."""
    states = [parse_state(text) for text in history.texts]
    healthy = [state for time, state in zip(history.times_ns, states, strict=True) if time < healthy_end_ns]
    fields = frozenset[str]().union(*(state.keys() for state in healthy))
    usual_signs = set[str]().union(*(find_signs(history.kind, state, fields) for state in healthy))
    begins_ns: dict[str, int] = {}
    counts: dict[str, int] = defaultdict(int)
    for time_ns, state in zip(history.times_ns, states, strict=True):
        for sign in find_signs(history.kind, state, fields) - usual_signs if time_ns >= healthy_end_ns else ():
            begins_ns.setdefault(sign, time_ns)
            counts[sign] += 1
    last_ns = history.times_ns[-1]
    if healthy and last_ns < view.window[1] - 2.5 * SAMPLING_NS:
        begins_ns["gone"], counts["gone"] = last_ns, len(states)
    if not begins_ns:
        return []
    sign = max(sorted(begins_ns), key=lambda name: counts[name])
    share = min(1.0, counts[sign] / len(states))
    text = f"{sign} since {clock_text(begins_ns[sign], view.window)}"
    return [_build_observation(history, begins_ns[sign], _SIGN + share, text)]


def _build_observation(history: ObjectHistory, time_ns: int, strength: float, text: str) -> Observation:
    subject = f"{history.kind}/{history.name}"
    return Observation(
        service=history.service,
        kind="change",
        subject=subject,
        time_ns=time_ns,
        strength=strength,
        text=f"{printable(subject)}: {text}",
    )


def _observe_warnings(view: EpisodeView, healthy_end_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return, for each service, its most frequent warning among warnings that did not occur in the reference."""
    frame = read_frame(view, "events", ("time", "type", "reason", "service", "message"))
    frame = frame[(frame["type"].astype(str) == "Warning") & frame["service"].isin(services)]
    observations = []
    for service, rows in frame.groupby("service", observed=True):
        usual_reasons = set(rows.loc[rows["time"] < healthy_end_ns, "reason"])
        rows = rows[(rows["time"] >= healthy_end_ns) & ~rows["reason"].isin(usual_reasons)]
        if rows.empty:
            continue
        reason = rows["reason"].astype(str).value_counts().index[0]
        lines = rows[rows["reason"].astype(str) == reason]
        time_ns = int(lines["time"].iloc[0])
        message = brief(printable(str(lines["message"].iloc[0])), 60)
        text = f"event {reason} ({len(lines)} times since {clock_text(time_ns, view.window)}): {message}"
        observations.append(
            Observation(
                service=str(service),
                kind="change",
                subject=f"event {reason}",
                time_ns=time_ns,
                strength=_EVENT,
                text=text,
            )
        )
    return observations


def _format_value(value: object) -> str:
    return "none" if value is None else brief(printable(str(value)), _VALUE_LENGTH)
