"""Spans as the rules on traces count them: by operation when they ended, by call when both sides knew of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.traces.spans import Flags, Ints, Spans, read_spans

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class EndedSpans:
    """[n] spans of candidate services."""

    ends_ns: Ints
    """Before, nobody knew of the span."""
    durations_ns: Ints
    services: Ints
    """Place in the sorted candidates."""
    operations: Ints
    """Place in `names`."""
    names: tuple[tuple[str, str], ...]
    """(service, operation) of each kind of span."""
    failed: Flags


@dataclass(frozen=True, kw_only=True)
class Calls:
    """[m] calls between two candidates."""

    known_ns: Ints
    """When spans of both sides had ended; of the caller alone where it names whom it called."""
    edges: Ints
    """Caller times the number of candidates, plus callee."""


def read_ended_spans(episode: EpisodeView) -> EndedSpans:
    """Read an episode's spans with their operations."""
    return episode.once("ended spans", lambda: ended_spans(read_spans(episode)))


def read_calls(episode: EpisodeView) -> Calls:
    """Read the calls that an episode's spans show."""
    return episode.once("calls", lambda: calls_of(read_spans(episode)))


def ended_spans(spans: Spans) -> EndedSpans:
    """Choose the spans of candidates and number their operations."""
    rows = np.flatnonzero(spans.service >= 0)
    width = max(1, len(spans.operations))
    kinds, _, operation = distinct(spans.service[rows] * width + spans.operation[rows])
    return EndedSpans(
        ends_ns=spans.end_ns[rows],
        durations_ns=spans.duration_ns[rows],
        services=spans.service[rows],
        operations=operation,
        names=tuple((spans.names[kind // width], spans.operations[kind % width]) for kind in kinds.tolist()),
        failed=spans.error[rows],
    )


def calls_of(spans: Spans) -> Calls:
    """Find the calls: a span that names its peer, or one below a span of another service that names none."""
    if not len(spans):
        return Calls(known_ns=np.zeros(0, dtype=np.int64), edges=np.zeros(0, dtype=np.int64))
    has_parent = spans.parent >= 0
    above = np.where(has_parent, spans.service[spans.parent], -1)
    named = np.where(has_parent, spans.peer[spans.parent], -1)
    names_peer = (spans.service >= 0) & (spans.peer >= 0) & (spans.peer != spans.service)
    below = ~names_peer & (spans.service >= 0) & (above >= 0) & (above != spans.service) & (named != spans.service)
    ends = spans.end_ns
    known = np.where(below, np.maximum(ends, ends[spans.parent]), ends)
    caller = np.where(names_peer, spans.service, above)
    callee = np.where(names_peer, spans.peer, spans.service)
    rows = np.flatnonzero(names_peer | below)
    return Calls(known_ns=known[rows], edges=caller[rows] * len(spans.names) + callee[rows])
