"""A recording of 50 minutes in two segments, with three incidents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.datasets.format.context import RecordingContext, Sampling
from faultset.datasets.format.recordings import RecordingWriter

SECOND = 1_000_000_000
START_NS = 1_760_000_000 * SECOND
CHUNK_S = 600


def context(recording: str = "r1", **changes: Any) -> RecordingContext:
    return RecordingContext(
        **{
            "recording": recording,
            "app": "bare",
            "platform": "test",
            "source_intervals_s": {"metrics": 5.0},
            "services": ("front", "geo"),
            "calls": (("front", "geo"),),
            "workload_entry": "front",
            "sampling": Sampling(traces=0.1, slow_traces_s=0.5, log_levels=("error",)),
            **changes,
        }
    )


def at(seconds: float) -> int:
    return START_NS + round(seconds * SECOND)


def incident(name: str, start_s: float, length_s: float | None, **changes: Any) -> dict[str, Any]:
    """Return the row of an incident; without a length it has no end."""
    ends = {} if length_s is None else {"recover_start": at(start_s + length_s), "recover_done": at(start_s + length_s)}
    return {
        "incident": name,
        "fault": "memory-leak",
        "targets": ["geo"],
        "root_causes": [{"kind": "Deployment", "name": "geo", "service": "geo", "accepted": ["geo"]}],
        "parameters": {"size": 3},
        "inject_start": at(start_s),
        "inject_done": at(start_s + 1),
        **ends,
        "healthy_again": None if length_s is None else at(start_s + length_s + 10),
        "verdict": "manifest",
        "first_manifest": at(start_s + 3),
        "seed": 5,
        **changes,
    }


def samples(first_s: int, last_s: int) -> pa.Table:
    """Return a counter that grows by 2 per second and a level that equals the second, every 5 s."""
    times = np.arange(first_s, last_s, 5)
    rows = [(second, "requests_total", "counter", 2.0 * second) for second in times.tolist()]
    rows += [(second, "level", "gauge", float(second)) for second in times.tolist()]
    words = {"service": "geo", "pod": "geo-1", "container": "geo", "labels": "{}"}
    return pa.table(
        {
            "time": pa.array([at(second + 0.5) for second, *_ in rows], pa.timestamp("ns", "UTC")),
            **{name: pa.array([word] * len(rows)) for name, word in words.items()},
            "metric": pa.array([metric for _, metric, *_ in rows]),
            "kind": pa.array([kind for *_, kind, _ in rows]),
            "value": pa.array([value for *_, value in rows]),
        }
    )


def spans(rows: Sequence[tuple[float, float]]) -> pa.Table:
    """Return spans with these starts and durations in seconds."""
    count = len(rows)
    words = {"service": "geo", "reported_service": "geo", "pod": "geo-1", "operation": "GET /", "kind": "server"}
    words |= {"status": "unset", "attributes": "{}"}
    return pa.table(
        {
            "time": pa.array([at(start_s) for start_s, _ in rows], pa.timestamp("ns", "UTC")),
            "trace_id": pa.array([f"{number:032x}" for number in range(count)]),
            "span_id": pa.array([f"{number:016x}" for number in range(count)]),
            "parent_span_id": pa.array([None] * count, pa.string()),
            "peer_service": pa.array([None] * count, pa.string()),
            "duration_ns": pa.array([round(length_s * SECOND) for _, length_s in rows]),
            "status_code": pa.array([200] * count, pa.int32()),
            **{name: pa.array([word] * count) for name, word in words.items()},
        }
    )


def write_chunks(writer: RecordingWriter, numbers: Sequence[int], truth: dict[int, dict[str, Any]]) -> None:
    """Append chunks of ten minutes by their position in time; the truth of each by its position."""
    for number in numbers:
        first_s, last_s = number * CHUNK_S, (number + 1) * CHUNK_S
        tables = {"metrics": [samples(first_s, last_s)], "spans": [spans([(first_s + 5, 1), (last_s - 1, 3)])]}
        writer.append(at(first_s), at(last_s), tables, truth=truth.get(number))


TRUTH: dict[int, dict[str, Any]] = {
    0: {"incidents": [incident("a", 500, None, verdict="unknown", first_manifest=None)]},
    1: {
        "incidents": [incident("a", 500, 300), incident("b", 1000, 120)],
        "evidence": [
            {"incident": "b", "check": "injection", "subject": "geo", "time": at(1001), "passed": True, "detail": ""}
        ],
        "decoys": [{"decoy": "restart", "service": "front", "start": at(700), "end": at(700), "parameters": {}}],
        "load": [{"start": at(600), "end": at(1200), "planned_rps": 5.0, "requests": 3000}],
    },
    4: {
        "incidents": [incident("c", 2500, 200)],
        "voids": [{"start": at(2650), "end": at(2700), "reason": "host", "detail": "busy"}],
    },
}
"""Two incidents in the first segment, of which the first crosses chunks, and one in the second that does not count."""
