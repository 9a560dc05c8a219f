"""Events within requests: starts and ends of spans, log lines, calls to services and their responses.

As Nezha proposes, metrics, logs and traces become events. An event belongs to a span. Methods that use patterns compare
which events follow each other within a span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.features.log_lines import Drain
from faultset.baselines.features.spans import Flags, Ints, Spans, called_operations
from faultset.baselines.stats.scaling import distinct
from faultset.datasets.views import EpisodeView, read_table

# Most loggers write the location in the code, which identifies the statement better than its text.
_CODE_LOCATION = (
    r"^[\d:.,\sTZ+\-]*(?:(?i:trace|debug|info|notice|warn|warning|error|fatal)\s+)?"
    r"(?P<location>\S*[A-Za-z_$)\]][#:]\d+)\s"
)


@dataclass(frozen=True, kw_only=True)
class LogEvents:
    """[n] log lines that belong to recorded spans, in the order of the table."""

    span: Ints
    """Row of the span."""
    time_ns: Ints
    statement: Ints
    """Index into `statements`."""
    statements: tuple[str, ...]
    """Location in the code if the line has it, otherwise the template of the text."""


def read_log_events(episode: EpisodeView, spans: Spans) -> LogEvents:
    """Read the log lines with the id of a recorded span."""
    return episode.once("log events", lambda: _build_log_events(episode, spans))


def _build_log_events(episode: EpisodeView, spans: Spans) -> LogEvents:
    table = read_table(episode, "logs", ("time", "message", "span_id"))
    row = pc.index_in(table["span_id"].cast(pa.string()), value_set=spans.span_ids).combine_chunks()  # type: ignore[attr-defined]
    has_span = pc.and_kleene(row.is_valid(), table["span_id"].combine_chunks().is_valid())  # type: ignore[attr-defined]
    table = table.filter(has_span)
    statement, statements = identify_statements(table["message"])
    return LogEvents(
        span=row.filter(has_span).cast("int64").to_numpy(zero_copy_only=False),
        time_ns=table["time"].cast("int64").to_numpy(),
        statement=statement,
        statements=statements,
    )


def identify_statements(messages: pa.ChunkedArray) -> tuple[Ints, tuple[str, ...]]:
    """Return the program statement that wrote each message, based on its first line.

    >>> lines = ["12:00:01 INFO a.Shop#31 sold 3", "server.go:7 > hi", "sold 12"]
    >>> code, names = identify_statements(pa.chunked_array([lines]))
    >>> [names[number] for number in code]
    ['a.Shop#31', 'server.go:7', 'sold <*>']
    """
    first = pc.list_element(pc.split_pattern(messages, "\n", max_splits=1), 0)  # type: ignore[attr-defined]
    match = pc.extract_regex(first, _CODE_LOCATION)  # type: ignore[attr-defined]
    location = pc.struct_field(match, "location")  # type: ignore[attr-defined]
    encoded = location.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    code = encoded.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False).copy()
    rows = np.flatnonzero(code < 0)
    if len(rows):
        drain = Drain()
        ids, _ = drain.add_all(text or "" for text in first.take(rows).to_pylist())
        code[rows] = len(names) + np.asarray(ids)
        names += [template.text for template in drain.templates]
    words = sorted({names[number] for number in distinct(code).values.tolist()})
    position = {word: number for number, word in enumerate(words)}
    return np.array([position.get(name, -1) for name in names], dtype=np.int64)[code], tuple(words)


BEGIN, LOG, CALL, RETURN, END = range(5)
_WORDS = ("begin", "log", "call", "response from", "end")


@dataclass(frozen=True, kw_only=True)
class Events:
    """[n] events, sorted by span and time; each span has a start and an end event."""

    span: Ints
    """Row of the span."""
    time_ns: Ints
    kind: Ints
    """One of `BEGIN`, `LOG`, `CALL`, `RETURN`, `END`."""
    failed: Flags
    """Whether the span ended, or the call returned, with an error."""
    service: Ints
    """Called service for calls and responses; the span's service for other events; -1 if unknown."""
    detail: Ints
    """Log statement of a line, operation of any other event."""
    statements: tuple[str, ...]
    names: tuple[str, ...]
    operations: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.span)

    @property
    def key(self) -> Ints:
        """Return a number per event, the same for equal events."""
        width = max(len(self.statements), len(self.operations)) + 1
        return ((self.kind * 2 + self.failed) * (len(self.names) + 1) + self.service + 1) * width + self.detail + 1

    def text(self, row: int) -> str:
        """Return a description of an event."""
        kind = int(self.kind[row])
        detail = (self.statements if kind == LOG else self.operations)[self.detail[row]]
        called = f" {self.names[self.service[row]]}" if kind in (CALL, RETURN) and self.service[row] >= 0 else ""
        return f"{_WORDS[kind]}{called} {detail}{' with an error' if self.failed[row] else ''}"


@dataclass(frozen=True, kw_only=True)
class Clients:
    """[n] spans that only represent a call on the caller's side, not code that runs."""

    is_client: Flags
    answer: Ints
    """Row of the called service's span, or -1."""
    called: Ints
    """Called service, or -1 if unknown."""


def find_client_spans(spans: Spans, logs: LogEvents) -> Clients:
    """Return which spans represent a call: spans that name a peer, and spans that only contain a call to a service.

    A span that names no peer represents a call if most spans of the same name contain only a call. This also covers
    spans without a response.
    """
    logged = np.zeros(len(spans), dtype=bool)
    logged[logs.span] = True
    children = np.bincount(spans.parent[spans.parent >= 0], minlength=len(spans))
    children_rows = np.flatnonzero(spans.parent >= 0)
    foreign = children_rows[spans.service[spans.parent[children_rows]] != spans.service[children_rows]]
    answer = np.full(len(spans), -1)
    # The first response counts.
    answer[spans.parent[foreign[::-1]]] = foreign[::-1]
    only_calls = (children == 1) & (answer >= 0) & ~logged
    is_silent = (children == 0) & ~logged
    group = distinct(spans.service * (len(spans.operations) + 1) + spans.operation).code
    not_silent = np.bincount(group, weights=~is_silent)
    mostly_client = np.bincount(group, weights=only_calls) > 0.5 * not_silent
    names_peer = (spans.peer >= 0) & (spans.peer != spans.service) & (children <= 1)
    is_client = names_peer | (mostly_client[group] & (only_calls | is_silent))
    return Clients(
        is_client=is_client,
        answer=np.where(is_client, answer, -1),
        called=np.where(answer >= 0, spans.service[answer], spans.peer),
    )


def read_own_events(episode: EpisodeView, spans: Spans) -> Events:
    """Read the start, log lines and end of every span of an episode."""
    return episode.once("own events", lambda: build_span_events(spans, read_log_events(episode, spans)))


def build_span_events(spans: Spans, logs: LogEvents) -> Events:
    """Return the start, log lines and end of every span, without events of its child spans."""
    return _sort_events(spans, logs, _build_boundary_events(spans, np.arange(len(spans)), logs))


def build_code_events(spans: Spans, logs: LogEvents, clients: Clients) -> Events:
    """Return the events of spans in which code runs, with their calls and the responses."""
    parts = _build_boundary_events(spans, np.flatnonzero(~clients.is_client), logs)
    child = np.flatnonzero((spans.parent >= 0) & ~clients.is_client[spans.parent])
    recorder = np.where(clients.answer[child] >= 0, clients.answer[child], child)
    called = np.where(clients.is_client[child], clients.called[child], spans.service[child])
    answered = ~clients.is_client[child] | (clients.answer[child] >= 0)
    operation, answerable = called_operations(
        spans.service[child], called, spans.operation[child], spans.operation[recorder], answered
    )
    no_failure = np.zeros(len(child), dtype=bool)
    parts.append((spans.parent[child], spans.start_ns[child], CALL, no_failure, called, operation))
    failed = spans.error[child] | (answerable & ~answered)
    parts.append((spans.parent[child], spans.end_ns[child], RETURN, failed, called, operation))
    return _sort_events(spans, logs, parts)


_EventColumns = tuple[Ints, Ints, int, Flags, Ints, Ints]


def _build_boundary_events(spans: Spans, rows: Ints, logs: LogEvents) -> list[_EventColumns]:
    no_failure = np.zeros(len(rows), dtype=bool)
    # A line may have a time after the end of its span.
    last = spans.end_ns.copy()
    np.maximum.at(last, logs.span, logs.time_ns)
    begin = (rows, spans.start_ns[rows], BEGIN, no_failure, spans.service[rows], spans.operation[rows])
    end = (rows, last[rows], END, spans.error[rows], spans.service[rows], spans.operation[rows])
    time_ns = np.maximum(logs.time_ns, spans.start_ns[logs.span])
    lines = (logs.span, time_ns, LOG, np.zeros(len(time_ns), dtype=bool), spans.service[logs.span], logs.statement)
    return [begin, lines, end]


def _sort_events(spans: Spans, logs: LogEvents, parts: list[_EventColumns]) -> Events:
    span, time_ns, failed, service, detail = (
        np.concatenate([columns[column] for columns in parts]) for column in (0, 1, 3, 4, 5)
    )
    kind = np.repeat([columns[2] for columns in parts], [len(columns[0]) for columns in parts])
    order = np.lexsort([kind * (detail.max(initial=0) + 2) + detail, time_ns, span])
    return Events(
        span=span[order],
        time_ns=time_ns[order],
        kind=kind[order],
        failed=failed[order],
        service=service[order],
        detail=detail[order],
        statements=logs.statements,
        names=spans.names,
        operations=spans.operations,
    )
