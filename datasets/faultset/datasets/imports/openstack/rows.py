"""Logs and RPC spans of a round as rows of our tables, moved and cut to a part of the view."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import LOGS, SPANS, TIME
from faultset.datasets.imports.columns import constant, words_of
from faultset.datasets.imports.openstack.experiments import WorkloadRound
from faultset.datasets.imports.openstack.processes import caller_of_code, process_of_topic

_RECORD = re.compile(r"\n(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ [A-Z])")
_FIELDS = (
    r"(?s)^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \d+ (?P<level>[A-Z]+) (?P<module>\S+) "
    r"(?:\[(?P<request>req-[0-9a-f-]+)[^\]]*\] ?)?(?P<text>.*)$"
)
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "fatal"}
_TRACED = re.compile(r"'_context_request_id': u?'(req-[0-9a-f-]+)'")
_TOPIC = re.compile(r"topic=([^,>]+)")
_CODE = re.compile(r"/(?:site|dist)-packages(/[^']+)'")


@dataclass(frozen=True, kw_only=True)
class RoundSegment:
    """A round of the workload and where its rows come in the view."""

    round: WorkloadRound
    start_ns: int
    end_ns: int
    ahead_s: int
    """Seconds by which log times are ahead of UTC."""
    moved_ns: int = 0

    def placed(self, times_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows lie in the part, and the times of those in the view."""
        inside = (times_ns >= self.start_ns) & (times_ns < self.end_ns)
        return inside, times_ns[inside] + self.moved_ns


def log_rows(parts: Sequence[RoundSegment]) -> Iterator[pa.Table]:
    """Yield the table `logs`, one file after the other; lines without a time belong to the line before."""
    for part in parts:
        for process, path in part.round.logs.items():
            yield _log(part, process, path)


def span_rows(parts: Sequence[RoundSegment], processes: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the table `spans`: every RPC as a span of its caller."""
    for part in parts:
        yield _spans(part, read_spans(part.round), processes)


def read_spans(run: WorkloadRound) -> list[dict[str, Any]]:
    """Return the spans of a round as its file has them; without a file there are none."""
    if run.traces is None:
        return []
    try:
        listed = json.loads(run.traces.read_text(encoding="utf-8", errors="replace") or "[]")
        return [_checked(span) for trace in listed for span in trace]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{run.traces} is no list of Zipkin traces ({str(error)[:160]}); restore it or leave the case out"
        ) from error


def ends_of(span: dict[str, Any], processes: Sequence[str]) -> tuple[str | None, str | None]:
    """Return who called whom; None where it cannot be told."""
    told = span["told"]
    frames = [match[1] for key in ("caller_1", "caller_2") if (match := _CODE.search(told.get(key, "")))]
    topic = _TOPIC.search(told.get("target", ""))
    callee = process_of_topic(topic[1].strip()) if topic else None
    if callee is None and "novaclient" in told.get("target", ""):
        callee = process_of_topic("novaclient")
    return caller_of_code(frames, processes), callee if callee in processes else None


def _checked(span: Any) -> dict[str, Any]:
    told = {str(one["key"]).strip().rstrip(":"): str(one["value"]) for one in span.get("binaryAnnotations") or ()}
    return {
        "trace": str(span["traceId"]),
        "id": str(span["id"]),
        "start": int(span["timestamp"]),
        "duration": int(span.get("duration") or 0),
        "told": told,
    }


def _log(part: RoundSegment, process: str, path: Path) -> pa.Table:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
    fields = pc.extract_regex(pa.array(_RECORD.split(text), pa.string()), _FIELDS)  # type: ignore[attr-defined]
    fields = fields.drop_null()
    stamps = fields.field("time")
    times = pc.strptime(pc.utf8_slice_codeunits(stamps, 0, 19), "%Y-%m-%d %H:%M:%S", "s")  # type: ignore[attr-defined]
    whole = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    thousandths = pc.utf8_slice_codeunits(stamps, 20, 23).cast(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]
    inside, placed = part.placed((whole - part.ahead_s) * SECOND_NS + thousandths * 1_000_000)
    kept = fields.filter(pa.array(inside))
    rows = len(kept)
    request = kept.field("request")
    return _table(
        LOGS,
        {
            "time": pa.array(placed),
            "service": constant(process, rows),
            "pod": constant(process, rows),
            "container": words_of(kept.field("module")),
            "level": _levels(kept.field("level")),
            "message": pc.utf8_rtrim_whitespace(kept.field("text")),  # type: ignore[attr-defined]
            "trace_id": pc.if_else(pc.equal(request, ""), pa.scalar(None, pa.string()), request),  # type: ignore[attr-defined]
            "span_id": pa.nulls(rows, pa.string()),
        },
    )


def _levels(column: pa.Array) -> pa.ChunkedArray:
    encoded = column.dictionary_encode()
    words = pa.array([_LEVELS.get(word) for word in encoded.dictionary.to_pylist()], pa.string())
    return words_of(words.take(encoded.indices))


def _spans(part: RoundSegment, spans: list[dict[str, Any]], processes: Sequence[str]) -> pa.Table:
    start = np.array([span["start"] for span in spans], dtype=np.int64) * 1000
    inside, placed = part.placed(start)
    kept = [span for span, keep in zip(spans, inside.tolist(), strict=True) if keep]
    rows = len(kept)
    ends = [ends_of(span, processes) for span in kept]
    request = [match[1] if (match := _TRACED.search(span["told"].get("message", ""))) else None for span in kept]
    failed = ["error" in span["told"] for span in kept]
    caller = words_of(pa.array([caller for caller, _ in ends], pa.string()))
    return _table(
        SPANS,
        {
            "time": pa.array(placed),
            # the request of the logs where the call says it, so that both can be joined
            "trace_id": pa.array([one or span["trace"] for one, span in zip(request, kept, strict=True)], pa.string()),
            "span_id": pa.array([span["id"] for span in kept], pa.string()),
            "parent_span_id": pa.nulls(rows, pa.string()),
            "service": caller,
            "reported_service": words_of(pa.array([one or "unknown" for one, _ in ends], pa.string())),
            "peer_service": words_of(pa.array([callee for _, callee in ends], pa.string())),
            "pod": caller,
            "operation": words_of(pa.array([span["told"].get("method", "unnamed") for span in kept], pa.string())),
            "kind": constant("client", rows),
            "duration_ns": pa.array([span["duration"] * 1000 for span in kept], pa.int64()),
            "status": words_of(pa.array(["error" if wrong else "unset" for wrong in failed], pa.string())),
            "status_code": pa.nulls(rows, pa.int32()),
            "attributes": constant("{}", rows).cast(pa.string()),
        },
    )


def _table(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    wanted = pa.schema([field for field in schema if field.name != "episode"])
    made = [
        columns[field.name].cast(TIME) if field.name == "time" else columns[field.name].cast(field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(made, schema=wanted)
