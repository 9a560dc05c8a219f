"""What is observed within requests: what follows what in the code of a service, and what is slower than usual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.scaling import Matrix
from faultset.baselines.traces.events import (
    LOG,
    RETURN,
    Clients,
    Events,
    client_spans,
    code_events,
    read_log_events,
    read_own_events,
)
from faultset.baselines.traces.pattern_contrast import Observations
from faultset.baselines.traces.slow_spans import Ints
from faultset.baselines.traces.spans import Flags, Spans, only_pods

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SLOW_FACTOR = 3.0
SLOW_QUANTILE = 0.9
SLOW_LEAST_NS = 2_000_000
AFTER_ANSWER = 0.5


@dataclass(frozen=True, kw_only=True)
class Sort:
    """One sort of observations, with a way to tell people what a row shows."""

    seen: Observations
    text: Callable[[int, int], str]
    """Says what a row shows, given a row of what was usual."""
    rows_count: bool = True
    """Whether a change takes part in what came first; timing does not, since it leaves out the time of others."""


def observed(spans: Spans, episode: EpisodeView, healthy_end_ns: int) -> list[Sort]:
    """Observe an episode's requests: what follows what, and what takes longer than it did when healthy."""
    return episode.once(("requests observed", healthy_end_ns), lambda: _observed(spans, episode, healthy_end_ns))


def _observed(spans: Spans, episode: EpisodeView, healthy_end_ns: int) -> list[Sort]:
    logs = read_log_events(episode, spans)
    clients = client_spans(spans, logs)
    lines, calls = read_own_events(episode, spans), code_events(spans, logs, clients)
    return [
        _successions(spans, lines, np.flatnonzero(~clients.is_client[lines.span])),
        _successions(spans, calls, np.flatnonzero(calls.kind != LOG)),
        *_paces(spans, clients, healthy_end_ns),
    ]


def _successions(spans: Spans, events: Events, kept: Ints) -> Sort:
    """What follows each event in its span, told apart by the operation that the span was called from."""
    source, target = kept[:-1], kept[1:]
    joined = events.span[source] == events.span[target]
    joined &= spans.service[events.span[source]] >= 0
    source, target = source[joined], target[joined]
    span = events.span[source]
    owner = spans.service[span]
    above = spans.parent[span]
    caller = np.where(above >= 0, spans.operation[above], -1) + 1
    key = events.key
    place = distinct(owner * (len(spans.operations) + 1) + caller).code
    failed_answer = (events.kind[target] == RETURN) & events.failed[target] & (events.service[target] >= 0)
    # What a service does after an answer depends on what the answer was.
    after_answer = (events.kind[source] == RETURN) & (events.service[source] != owner)
    # Numbered anew, so that their product with the number of places fits.
    kinds = distinct(key).code
    seen = Observations(
        source=place * (int(kinds.max(initial=0)) + 1) + kinds[source],
        target=kinds[target],
        blamed=np.where(failed_answer, events.service[target], owner),
        pod=np.where(failed_answer, only_pods(spans)[events.service[target]], spans.pod[span]),
        trace=spans.trace[span],
        began_ns=events.time_ns[source],
        known_ns=events.time_ns[target],
        certainty=np.where(after_answer, AFTER_ANSWER, 1.0),
    )

    def text(row: int, expected_row: int) -> str:
        expected = "" if expected_row == row else f", usually {events.text(int(target[expected_row]))}"
        return f"{events.text(int(source[row]))} -> {events.text(int(target[row]))}{expected}"

    return Sort(seen=seen, text=text)


def _paces(spans: Spans, clients: Clients, healthy_end_ns: int) -> list[Sort]:
    """Usual or slow: the own time of each service's code, the way to each service, and the way from each one."""
    own = spans.own_ns
    code = np.flatnonzero(~clients.is_client & (spans.service >= 0))
    calls = np.flatnonzero(clients.is_client & (clients.called >= 0) & (spans.service >= 0))
    shown = np.where(clients.answer[calls] >= 0, clients.answer[calls], calls)
    answered_ns = np.where(clients.answer[calls] >= 0, spans.duration_ns[shown], 0)
    spent = (spans.duration_ns[calls] - answered_ns).astype(float)
    called = np.where(clients.answer[calls] >= 0, spans.pod[shown], only_pods(spans)[clients.called[calls]])
    group = (spans.service[calls] * len(spans.names) + clients.called[calls]) * len(spans.operations)
    group = group + spans.operation[shown]
    return [
        _pace(
            spans,
            code,
            own[code],
            spans.service[code] * len(spans.operations) + spans.operation[code],
            spans.service[code],
            spans.pod[code],
            healthy_end_ns,
            "slow code",
        ),
        _pace(spans, calls, spent, group, clients.called[calls], called, healthy_end_ns, "slow way to the service"),
        _pace(
            spans,
            calls,
            spent,
            group,
            spans.service[calls],
            spans.pod[calls],
            healthy_end_ns,
            "slow way from the service",
        ),
    ]


def _pace(
    spans: Spans, rows: Ints, spent_ns: Matrix, group: Ints, service: Ints, pod: Ints, healthy_end_ns: int, words: str
) -> Sort:
    known = spans.end_ns[rows] < healthy_end_ns
    slow = spent_ns > slow_limits(group, spent_ns, known)
    return Sort(
        seen=Observations(
            source=service,
            target=slow.astype(np.int64),
            blamed=service,
            pod=pod,
            trace=spans.trace[rows],
            began_ns=spans.start_ns[rows],
            known_ns=spans.end_ns[rows],
            # Becoming fast again is no trouble.
            certainty=slow.astype(float),
        ),
        text=lambda row, expected_row: words,
        rows_count=False,
    )


def slow_limits(group: Ints, spent_ns: Matrix, known: Flags, *, least: int = 3) -> Matrix:
    """Some times what nearly all known rows of each row's group spent; infinite for groups of fewer than `least`."""
    group = distinct(group).code
    size = int(group.max()) + 1 if len(group) else 0
    order = np.lexsort([spent_ns[known], group[known]])
    sorted_groups, spent = group[known][order], spent_ns[known][order]
    begin = np.searchsorted(sorted_groups, np.arange(size))
    count = np.bincount(sorted_groups, minlength=size)
    limit = np.full(size, np.inf)
    enough = np.flatnonzero(count >= least)
    place = begin[enough] + np.ceil(SLOW_QUANTILE * count[enough]).astype(int) - 1
    limit[enough] = np.maximum(SLOW_FACTOR * spent[place], SLOW_LEAST_NS)
    return limit[group]
