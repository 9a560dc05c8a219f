"""Spans of an episode as arrays, and the calls between services.

A service that is down sends no spans. So a call without a response counts as an invocation of the called service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.api.tables import read_table
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.baselines.traces.peers import fill_in_usual_peers, find_named_peers
from faultset.datasets.status_codes import is_error_code

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

Ints = npt.NDArray[np.int64]
SD_FLOOR = 0.05


def exclusive_durations(starts_ns: Ints, durations_ns: Ints, parents: Ints) -> Matrix:
    """Return the duration of each span minus the time covered by its children, in nanoseconds.

    Overlapping children are subtracted once, and only within the parent.

    Parameters
    ----------
    parents
        Row of each span's parent, or -1.
    """
    exclusive = durations_ns.astype(float)
    children = np.flatnonzero(parents >= 0)
    if len(children) == 0:
        return exclusive
    owner = parents[children]
    lower, upper = starts_ns[owner], starts_ns[owner] + durations_ns[owner]
    begin = np.clip(starts_ns[children], lower, upper)
    end = np.clip(starts_ns[children] + durations_ns[children], lower, upper)
    order = np.lexsort([begin, owner])
    owner, begin, end = owner[order], begin[order], end[order]
    # Offsets separate the families, so that one running maximum handles all of them.
    family = np.cumsum(np.diff(owner, prepend=owner[0]) != 0)
    offset = family * (int(durations_ns.max()) + 1) - starts_ns[owner]
    begin, end = begin + offset, end + offset
    reached = np.maximum.accumulate(end)
    before = np.concatenate([begin[:1], reached[:-1]])
    covered = np.maximum(0, end - np.maximum(begin, before))
    return np.asarray(exclusive - np.bincount(owner, weights=covered, minlength=len(exclusive)), dtype=float)


def slow_spans(
    groups: Ints, durations: Matrix, reference: npt.NDArray[np.bool_], *, sigmas: float = 3.0
) -> npt.NDArray[np.bool_]:
    """Return which spans exceed mean + `sigmas` sd of their group in the reference.

    The sd is at least 5 % of the mean. Groups without reference spans are never slow.
    """
    count = int(groups.max()) + 1 if len(groups) else 0
    healthy_groups = groups[reference]
    counts = np.maximum(np.bincount(healthy_groups, minlength=count), 1)
    mean = np.bincount(healthy_groups, weights=durations[reference], minlength=count) / counts
    squares = np.bincount(healthy_groups, weights=(durations[reference] - mean[healthy_groups]) ** 2, minlength=count)
    sd = np.maximum(np.sqrt(squares / np.maximum(counts - 1, 1)), SD_FLOOR * mean)
    limit = np.where(np.bincount(healthy_groups, minlength=count) > 0, mean + sigmas * sd, np.inf)
    return durations > limit[groups]


Flags = npt.NDArray[np.bool_]
_COLUMNS = (
    "time",
    "trace_id",
    "span_id",
    "parent_span_id",
    "service",
    "pod",
    "peer_service",
    "operation",
    "duration_ns",
    "kind",
    "status",
    "status_code",
)
_DIGITS = re.compile(r"\d+")
_LOOK_BACK = 200
"""Maximum number of earlier spans in a trace that are examined as callers of a span whose parent is missing."""


@dataclass(frozen=True, kw_only=True)
class Spans:
    """[n] spans ordered by time."""

    names: tuple[str, ...]
    """Candidate services, sorted."""
    operations: tuple[str, ...]
    """Span names, numbers masked, sorted."""
    start_ns: Ints
    duration_ns: Ints
    trace: Ints
    """Number of the trace, from 0."""
    parent: Ints
    """Row of the parent or, if the parent is missing, of the presumed grandparent; -1 if both are missing."""
    orphan: Flags
    """Whether the parent was not recorded."""
    service: Ints
    """Index into `names`, or -1 for services that are not candidates."""
    pod: Ints
    """Index into `pods`, or -1 if unknown."""
    pods: tuple[str, ...]
    """Names of pods, sorted."""
    peer: Ints
    """Service that a client span calls, as index into `names`, or -1 if unknown."""
    operation: Ints
    """Index into `operations`."""
    error: Flags
    span_ids: pa.Array
    """[n] ids for joins with other tables."""

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def traces(self) -> int:
        """Return the number of traces."""
        return int(self.trace.max()) + 1 if len(self) else 0

    @property
    def end_ns(self) -> Ints:
        """Return the end of each span."""
        return self.start_ns + self.duration_ns

    @cached_property
    def calls(self) -> Invocations:
        """Return the calls between services."""
        return _find_invocations(self)

    @cached_property
    def own_ns(self) -> Matrix:
        """Return the exclusive time of each span."""
        return exclusive_durations(self.start_ns, self.duration_ns, self.parent)


@dataclass(frozen=True, kw_only=True)
class Invocations:
    """[m] calls of services by clients or other services, with or without an answer."""

    row: Ints
    """Span of the called service, or of the caller without a response."""
    caller: Ints
    """Index of the calling service, or -1 for clients and missing callers."""
    callee: Ints
    operation: Ints
    """[m] operation in the called service, or in the caller if such calls are never answered."""
    kind: Ints
    """[m] code of (called service, operation)."""


def read_spans(episode: EpisodeView) -> Spans:
    """Read the spans of an episode; the result may be empty."""

    def read_attributes() -> pa.ChunkedArray:
        return read_table(episode, "spans", ("attributes",))["attributes"]

    return episode.once(
        "spans", lambda: _build_spans(read_table(episode, "spans", _COLUMNS), episode.services, read_attributes)
    )


def _build_spans(
    table: pa.Table, services: tuple[str, ...], read_attributes: Callable[[], pa.ChunkedArray] | None = None
) -> Spans:
    start = table["time"].cast("int64").to_numpy()
    order = np.argsort(start, kind="stable")
    table = table.take(order)
    names = tuple(sorted(services))
    position = {name: code for code, name in enumerate(names)}
    pods = tuple(sorted(name for name in _split_dictionary(table["pod"])[0] if name))
    masked, operation = _mask_labels(table["operation"])
    code = _to_integers(table["status_code"])
    span_ids = _flatten(table["span_id"].cast(pa.string()))
    trace = _to_integers(pc.dictionary_encode(_flatten(table["trace_id"].cast(pa.string()))).indices)  # type: ignore[attr-defined]
    parent = _to_integers(pc.index_in(_flatten(table["parent_span_id"].cast(pa.string())), value_set=span_ids))  # type: ignore[attr-defined]
    # A parent in another trace is another span with the same id.
    parent = np.where((parent >= 0) & (trace[parent] == trace) & (parent != np.arange(len(parent))), parent, -1)
    named = pc.fill_null(pc.not_equal(_flatten(table["parent_span_id"].cast(pa.string())), ""), False)  # type: ignore[attr-defined]
    status = _map_names(table["status"], {"error": 1})
    orphan = _flatten(named).to_numpy(zero_copy_only=False) & (parent < 0)
    service = _map_names(table["service"], position)
    duration = np.maximum(0, table["duration_ns"].to_numpy())
    kind = distinct((service + 1) * (len(masked) + 1) + operation + 1).code
    parent = _replace_missing_parents(parent, orphan, start[order], duration, trace, kind)
    peer = _map_names(table["peer_service"], position)
    calls_unnamed = (_map_names(table["kind"], {"client": 1, "producer": 1}) == 1) & (peer < 0)
    if calls_unnamed.any():
        if read_attributes is not None:
            texts, codes = _split_dictionary(read_attributes().take(pa.array(order[calls_unnamed])))
            peer[calls_unnamed] = find_named_peers(texts, position)[codes]
        peer = fill_in_usual_peers(peer, calls_unnamed, parent, service, kind)
    return Spans(
        names=names,
        operations=masked,
        start_ns=start[order],
        duration_ns=duration,
        trace=trace,
        parent=parent,
        orphan=orphan,
        service=service,
        pod=_map_names(table["pod"], {name: code for code, name in enumerate(pods)}),
        pods=pods,
        peer=peer,
        operation=operation,
        error=(status == 1) | is_error_code(code),
        span_ids=span_ids,
    )


def _replace_missing_parents(
    parent: Ints, orphan: Flags, start_ns: Ints, duration_ns: Ints, trace: Ints, kind: Ints
) -> Ints:
    """Replace missing parents with the innermost enclosing span that is a usual grandparent.

    A kind of span is a usual grandparent if complete chains have it two levels above the same service and operation.
    """
    if not orphan.any():
        return parent
    width = int(kind.max()) + 1
    above = np.where(parent >= 0, parent[parent], -1)
    complete = above >= 0
    usual = distinct(kind[above[complete]] * width + kind[complete]).values
    order = np.lexsort([start_ns, trace])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rows, cursor = np.flatnonzero(orphan), rank[orphan] - 1
    parents = parent.copy()
    for _ in range(_LOOK_BACK):
        rows, cursor = rows[cursor >= 0], cursor[cursor >= 0]
        before = order[cursor]
        inside = trace[before] == trace[rows]
        rows, cursor, before = rows[inside], cursor[inside], before[inside]
        if not len(rows):
            break
        around = start_ns[before] + duration_ns[before] >= start_ns[rows] + duration_ns[rows]
        around &= np.isin(kind[before] * width + kind[rows], usual)
        parents[rows[around]] = before[around]
        rows, cursor = rows[~around], cursor[~around] - 1
    return parents


def _flatten(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _to_integers(column: pa.ChunkedArray | pa.Array) -> Ints:
    return _flatten(column).cast("int64").fill_null(-1).to_numpy(zero_copy_only=False)


def _split_dictionary(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = _flatten(column.unify_dictionaries())
    return array.dictionary.cast(pa.string()).to_pylist(), _to_integers(array.indices)


def _map_names(column: pa.ChunkedArray, position: Mapping[str, int]) -> Ints:
    words, codes = _split_dictionary(column)
    return np.array([*(position.get(word, -1) for word in words), -1], dtype=np.int64)[codes]


def _mask_labels(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Ints]:
    words, codes = _split_dictionary(column)
    masked = [_DIGITS.sub("#", word) for word in words]
    labels = tuple(sorted(set(masked)))
    position = {label: code for code, label in enumerate(labels)}
    return labels, np.array([*(position[word] for word in masked), -1], dtype=np.int64)[codes]


def find_only_pods(spans: Spans) -> Ints:
    """Return the only pod that sends spans of each service, or -1 if there is none or more than one.

    A call without a response can be attributed to such a pod.
    """
    rows = np.flatnonzero((spans.service >= 0) & (spans.pod >= 0))
    width = len(spans.pods) + 1
    owner, pod = np.divmod(distinct(spans.service[rows] * width + spans.pod[rows]).values, width)
    only = np.full(len(spans.names), -1)
    only[owner] = pod
    only[np.bincount(owner, minlength=len(only)) > 1] = -1
    return only


def find_called_pods(spans: Spans, calls: Invocations) -> Ints:
    """Return the called pod of each call as index into `pods`, or -1 if unknown."""
    return np.where(spans.service[calls.row] == calls.callee, spans.pod[calls.row], find_only_pods(spans)[calls.callee])


def find_calling_pods(spans: Spans, calls: Invocations) -> Ints:
    """Return the calling pod of each call as index into `pods`, or -1 for clients."""
    above = spans.parent[calls.row]
    row = np.where(spans.service[calls.row] == calls.callee, above, calls.row)
    return np.where((row >= 0) & (calls.caller >= 0), spans.pod[row], -1)


def attribute_spans(spans: Spans) -> Ints:
    """Return the service that each span is evidence about.

    It is the service of the span, or the called service if a call got no answer.
    """
    calls = spans.calls
    lost = spans.service[calls.row] != calls.callee
    service = spans.service.copy()
    service[calls.row[lost]] = calls.callee[lost]
    return service


def _find_invocations(spans: Spans) -> Invocations:
    parent_service = np.where(spans.parent >= 0, spans.service[spans.parent], -1)
    entering = (spans.service >= 0) & (parent_service != spans.service)
    entering &= ~spans.orphan | _is_usual_entry(entering, spans)
    answered = np.zeros(len(spans), dtype=bool)
    answered[spans.parent[entering & (spans.parent >= 0)]] = True
    lost = ~answered & (spans.peer >= 0) & (spans.peer != spans.service)
    row = np.concatenate([np.flatnonzero(entering), np.flatnonzero(lost)])
    caller = np.concatenate([parent_service[entering], spans.service[lost]])
    callee = np.concatenate([spans.service[entering], spans.peer[lost]])
    client_operation = np.where(entering[row], operation_of_parent(spans)[row], spans.operation[row])
    operation, _ = called_operations(caller, callee, client_operation, spans.operation[row], entering[row])
    kind = distinct(callee * (len(spans.operations) + 1) + operation).code
    return Invocations(row=row, caller=caller, callee=callee, operation=operation, kind=kind)


def _is_usual_entry(entering: Flags, spans: Spans) -> Flags:
    """Return which spans have an operation that is usually the entry to its service, judged by spans with a parent."""
    kind = distinct((spans.service + 1) * (len(spans.operations) + 1) + spans.operation + 1).code
    size = int(kind.max(initial=-1)) + 1
    complete = np.bincount(kind[~spans.orphan], minlength=size)
    entered = np.bincount(kind[entering & ~spans.orphan], minlength=size)
    return (2 * entered > complete)[kind]


def called_operations(
    caller: Ints, callee: Ints, requested: Ints, recorded: Ints, answered: Flags
) -> tuple[Ints, Flags]:
    """Return the operation in the called service for each call, and whether such calls are ever answered.

    Calls without a response get the operation of similar calls. Calls of stores are never answered, because stores send
    no spans.

    Parameters
    ----------
    requested
        Operation in the caller.
    recorded
        Operation of the span that records the call; if `answered`, the operation of the called service.

    Examples
    --------
    >>> ones = np.ones(3, dtype=int)
    >>> called_operations(ones, ones, 5 * ones, np.array([7, 7, 5]), np.array([True, True, False]))[0].tolist()
    [7, 7, 7]
    """
    services = int(max(caller.max(initial=0), callee.max(initial=0))) + 2
    names = int(max(requested.max(initial=0), recorded.max(initial=0))) + 2
    route = distinct(((caller + 1) * services + callee + 1) * names + requested + 1).code
    pairs, _, pair = distinct(route[answered] * names + recorded[answered] + 1)
    order = np.argsort(np.bincount(pair, minlength=len(pairs)), kind="stable")
    most_frequent = np.full(int(route.max(initial=-1)) + 1, -1)
    most_frequent[pairs[order] // names] = pairs[order] % names - 1
    answerable = most_frequent[route] >= 0
    return np.where(~answered & answerable, most_frequent[route], recorded), answerable


def operation_of_parent(spans: Spans) -> Ints:
    """Return the operation of each span's parent, or -1."""
    return np.where(spans.parent >= 0, spans.operation[spans.parent], -1)


@dataclass(frozen=True, kw_only=True)
class EndedSpans:
    """[n] spans of candidate services."""

    ends_ns: Ints
    """A span can be observed when it ends."""
    durations_ns: Ints
    services: Ints
    """Index into the sorted candidates."""
    operations: Ints
    """Index into `names`."""
    names: tuple[tuple[str, str], ...]
    """(service, operation) of each kind of span."""
    failed: Flags


@dataclass(frozen=True, kw_only=True)
class Calls:
    """[m] calls between two candidates."""

    known_ns: Ints
    """When the call can be observed: at the end of the caller's span if it names its peer, otherwise of both spans."""
    edges: Ints
    """caller · number of candidates + callee."""


def read_ended_spans(episode: EpisodeView) -> EndedSpans:
    """Read an episode's spans with their operations."""
    return episode.once("ended spans", lambda: select_ended_spans(read_spans(episode)))


def read_calls(episode: EpisodeView) -> Calls:
    """Read the calls that an episode's spans show."""
    return episode.once("calls", lambda: find_calls(read_spans(episode)))


def select_ended_spans(spans: Spans) -> EndedSpans:
    """Return the spans of candidates with coded operations."""
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


def find_calls(spans: Spans) -> Calls:
    """Return the calls between services.

    A span is a call if it names a peer, or if its parent is in another service and does not name the span's service.
    """
    if not len(spans):
        return Calls(known_ns=np.zeros(0, dtype=np.int64), edges=np.zeros(0, dtype=np.int64))
    has_parent = spans.parent >= 0
    above = np.where(has_parent, spans.service[spans.parent], -1)
    named = np.where(has_parent, spans.peer[spans.parent], -1)
    names_peer = (spans.service >= 0) & (spans.peer >= 0) & (spans.peer != spans.service)
    below = ~names_peer & (spans.service >= 0) & (above >= 0) & (above != spans.service) & (named != spans.service)
    ends = spans.end_ns
    known_ns = np.where(below, np.maximum(ends, ends[spans.parent]), ends)
    caller = np.where(names_peer, spans.service, above)
    callee = np.where(names_peer, spans.peer, spans.service)
    rows = np.flatnonzero(names_peer | below)
    return Calls(known_ns=known_ns[rows], edges=caller[rows] * len(spans.names) + callee[rows])
