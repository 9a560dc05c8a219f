"""Spans of an episode as arrays: parents, called services and pods, exclusive times, and calls between services."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.features.object_states import parse_state
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.views import EpisodeView, read_table

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_PEER_ATTRIBUTES = (
    "peer.service", "server.address", "net.peer.name", "net.peer.address", "url.full", "http.url", "http.host",
    "rpc.service", "db.system.name", "db.system", "messaging.system",
)  # fmt: skip
"""Current and deprecated OpenTelemetry attributes that name a called service, the most precise first."""


def find_named_peers(texts: Sequence[str], position: Mapping[str, int]) -> Ints:
    """Return the index of the service that each string of attributes names, or -1; append another -1 for nulls."""
    plain_names = {_plain_name(name): code for name, code in position.items()}
    return np.array(
        [*(_find_named_peer(parse_state(text), position, plain_names) for text in texts), -1], dtype=np.int64
    )


def _find_named_peer(attributes: Mapping[str, Any], position: Mapping[str, int], plain_names: Mapping[str, int]) -> int:
    """Return the service that attributes name, or -1.

    Examples
    --------
    >>> services = {"cart": 0, "redis-cart": 1}
    >>> plain = {_plain_name(name): code for name, code in services.items()}
    >>> _find_named_peer({"server.address": "cart.shop.svc.cluster.local:8080"}, services, plain)
    0
    >>> _find_named_peer({"rpc.service": "shop.CartService"}, services, plain)
    0
    >>> _find_named_peer({"server.address": "10.0.0.7", "db.system": "redis"}, services, plain)
    1
    """
    for key in _PEER_ATTRIBUTES:
        text = attributes.get(key)
        if not isinstance(text, str) or not text:
            continue
        if key.endswith(".system") or key == "db.system.name":
            stores = [code for name, code in position.items() if text.lower() in name.lower()]
            if len(stores) == 1:
                return stores[0]
            continue
        host = text.rpartition("://")[2].partition("/")[0].partition(":")[0]
        name = host.rpartition(".")[2] if key == "rpc.service" else host.partition(".")[0]
        code = position.get(host, position.get(name, plain_names.get(_plain_name(name), -1)))
        if code >= 0:
            return code
    return -1


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("service")


def fill_in_usual_peers(peer: Ints, calls_unnamed: Flags, parent: Ints, service: Ints, kind: Ints) -> Ints:
    """Fill in the peers of unanswered calls if all other calls of the same operation reach the same service."""
    crosses = (parent >= 0) & (service >= 0) & (service[parent] != service)
    answered = np.zeros(len(peer), dtype=bool)
    answered[parent[crosses]] = True
    reached = peer.copy()
    reached[parent[crosses]] = service[crosses]
    has_peer = reached >= 0
    size = int(kind.max(initial=-1)) + 1
    lowest, highest = np.full(size, np.iinfo(np.int64).max), np.full(size, -1)
    np.minimum.at(lowest, kind[has_peer], reached[has_peer])
    np.maximum.at(highest, kind[has_peer], reached[has_peer])
    usual = np.where(lowest == highest, highest, -1)[kind]
    return np.where(calls_unnamed & ~answered & (peer < 0), usual, peer)


SD_FLOOR = 0.05
"""Minimum standard deviation of durations, as a share of their mean."""


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
    previous_end = np.concatenate([begin[:1], reached[:-1]])
    covered = np.maximum(0, end - np.maximum(begin, previous_end))
    return np.asarray(exclusive - np.bincount(owner, weights=covered, minlength=len(exclusive)), dtype=float)


_SPAN_COLUMNS = (
    "time", "trace_id", "span_id", "parent_span_id", "service", "pod", "peer_service", "operation", "duration_ns",
    "kind", "status", "status_code",
)  # fmt: skip
_DIGITS = re.compile(r"\d+")
_LOOK_BACK = 200
"""Maximum number of earlier spans in a trace that are examined as callers of a span whose parent is missing."""


@dataclass(frozen=True, kw_only=True)
class Spans:
    """[n] spans ordered by time."""

    names: tuple[str, ...]
    """Candidate services, sorted."""
    operations: tuple[str, ...]
    """Span names with masked numbers, sorted."""
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
    """Service that a client span calls, as an index into `names`, or -1 if unknown."""
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
    """[m] calls to services from clients or other services, with or without a response."""

    row: Ints
    """Span of the called service, or of the caller if there is no response."""
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
        "spans", lambda: _build_spans(read_table(episode, "spans", _SPAN_COLUMNS), episode.services, read_attributes)
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

    A kind of span is a usual grandparent if it is two levels above this service and operation in some complete trace.
    """
    if not orphan.any():
        return parent
    width = int(kind.max()) + 1
    grandparent = np.where(parent >= 0, parent[parent], -1)
    complete = grandparent >= 0
    usual = distinct(kind[grandparent[complete]] * width + kind[complete]).values
    order = np.lexsort([start_ns, trace])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rows, cursor = np.flatnonzero(orphan), rank[orphan] - 1
    parents = parent.copy()
    for _ in range(_LOOK_BACK):
        rows, cursor = rows[cursor >= 0], cursor[cursor >= 0]
        previous = order[cursor]
        is_same_trace = trace[previous] == trace[rows]
        rows, cursor, previous = rows[is_same_trace], cursor[is_same_trace], previous[is_same_trace]
        if not len(rows):
            break
        encloses = start_ns[previous] + duration_ns[previous] >= start_ns[rows] + duration_ns[rows]
        encloses &= np.isin(kind[previous] * width + kind[rows], usual)
        parents[rows[encloses]] = previous[encloses]
        rows, cursor = rows[~encloses], cursor[~encloses] - 1
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
    only_pods = np.full(len(spans.names), -1)
    only_pods[owner] = pod
    only_pods[np.bincount(owner, minlength=len(only_pods)) > 1] = -1
    return only_pods


def find_called_pods(spans: Spans, calls: Invocations) -> Ints:
    """Return the called pod of each call as an index into `pods`, or -1 if unknown."""
    return np.where(spans.service[calls.row] == calls.callee, spans.pod[calls.row], find_only_pods(spans)[calls.callee])


def find_calling_pods(spans: Spans, calls: Invocations) -> Ints:
    """Return the calling pod of each call as an index into `pods`, or -1 for clients."""
    parent = spans.parent[calls.row]
    row = np.where(spans.service[calls.row] == calls.callee, parent, calls.row)
    return np.where((row >= 0) & (calls.caller >= 0), spans.pod[row], -1)


def attribute_spans(spans: Spans) -> Ints:
    """Return the service that each span is evidence about.

    It is the service of the span, or the called service if a call got no response.
    """
    calls = spans.calls
    is_unanswered = spans.service[calls.row] != calls.callee
    service = spans.service.copy()
    service[calls.row[is_unanswered]] = calls.callee[is_unanswered]
    return service


def _find_invocations(spans: Spans) -> Invocations:
    parent_service = np.where(spans.parent >= 0, spans.service[spans.parent], -1)
    is_entering = (spans.service >= 0) & (parent_service != spans.service)
    is_entering &= ~spans.orphan | _is_usual_entry(is_entering, spans)
    answered = np.zeros(len(spans), dtype=bool)
    answered[spans.parent[is_entering & (spans.parent >= 0)]] = True
    is_unanswered = ~answered & (spans.peer >= 0) & (spans.peer != spans.service)
    row = np.concatenate([np.flatnonzero(is_entering), np.flatnonzero(is_unanswered)])
    caller = np.concatenate([parent_service[is_entering], spans.service[is_unanswered]])
    callee = np.concatenate([spans.service[is_entering], spans.peer[is_unanswered]])
    parent_operation = np.where(spans.parent >= 0, spans.operation[spans.parent], -1)
    client_operation = np.where(is_entering[row], parent_operation[row], spans.operation[row])
    operation, _ = called_operations(caller, callee, client_operation, spans.operation[row], is_entering[row])
    kind = distinct(callee * (len(spans.operations) + 1) + operation).code
    return Invocations(row=row, caller=caller, callee=callee, operation=operation, kind=kind)


def _is_usual_entry(is_entering: Flags, spans: Spans) -> Flags:
    """Return which spans have an operation that is usually the entry to its service, judged by spans with a parent."""
    kind = distinct((spans.service + 1) * (len(spans.operations) + 1) + spans.operation + 1).code
    size = int(kind.max(initial=-1)) + 1
    complete = np.bincount(kind[~spans.orphan], minlength=size)
    entered = np.bincount(kind[is_entering & ~spans.orphan], minlength=size)
    return (2 * entered > complete)[kind]


def called_operations(
    caller: Ints, callee: Ints, requested: Ints, recorded: Ints, answered: Flags
) -> tuple[Ints, Flags]:
    """Return the operation in the called service for each call, and whether such calls are ever answered.

    Calls without a response get the operation of similar calls. Calls to stores are never answered, because stores send
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
