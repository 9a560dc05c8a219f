"""Tools about spans and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from faultset.datasets.status_codes import is_error_code
from faultset.datasets.tools.clock import stamp
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.state_tools import Cursor, Limit, ServiceFilter, SinceS
from faultset.datasets.tools.text_tables import folded_table
from faultset.datasets.tools.tool_answers import ToolAnswer, absent, empty, found, not_recorded

if TYPE_CHECKING:
    import pandas as pd

_MOST_SPANS = 200


class TraceTools:
    """Tools that read the spans."""

    recording: Recording

    def get_spans(
        self,
        service: ServiceFilter = None,
        operation: Annotated[str | None, Field(max_length=200, description="Only operations with this text.")] = None,
        errors_only: Annotated[bool, Field(description="Only spans that failed.")] = False,
        slower_than_ms: Annotated[float | None, Field(ge=0, description="Only spans that took longer.")] = None,
        since_s: SinceS = None,
        limit: Limit = 50,
        cursor: Cursor = 0,
    ) -> ToolAnswer:
        """List spans, the newest first."""
        problem = self._problem(service)
        if problem:
            return problem
        since_ns = self.recording.clock.since_ns(since_s)
        spans = self.recording.frame("spans", since_ns)
        if service is not None:
            spans = spans[spans["service"] == service]
        if operation is not None:
            spans = spans[spans["operation"].astype(str).str.contains(operation, case=False, regex=False)]
        if errors_only:
            spans = spans[_failed(spans)]
        if slower_than_ms is not None:
            spans = spans[spans["duration_ns"] > slower_than_ms * 1e6]
        if not len(spans):
            return empty(f"no such span from {stamp(since_ns)} to {stamp(self.recording.clock.now_ns)}")
        part = spans.iloc[::-1].iloc[cursor : cursor + limit]
        if not len(part):
            return empty(f"{len(spans)} spans, and the cursor passes over all of them")
        more = cursor + limit if cursor + limit < len(spans) else None
        return found(
            folded_table(["START", "TRACE", "SERVICE", "KIND", "OPERATION", "MS", "STATUS"], _lines(part)), more
        )

    def get_trace(
        self, trace_id: Annotated[str, Field(max_length=200, description="As get_spans gives it.")]
    ) -> ToolAnswer:
        """Show one trace as a tree."""
        problem = self._problem(None)
        if problem:
            return problem
        spans = self.recording.frame("spans")
        spans = spans[spans["trace_id"] == trace_id.strip().lower()]
        if not len(spans):
            return absent("trace", trace_id, [])
        return found(_tree(spans.head(_MOST_SPANS)))

    def service_graph(self, since_s: SinceS = None) -> ToolAnswer:
        """Show who calls whom with calls per minute, share of errors and 95th percentile of the duration."""
        problem = self._problem(None)
        if problem:
            return problem
        since_ns = self.recording.clock.since_ns(since_s)
        spans = self.recording.frame("spans", since_ns)
        if not len(spans):
            return empty(f"no span from {stamp(since_ns)} to {stamp(self.recording.clock.now_ns)}")
        return found(_graph(spans, (self.recording.clock.now_ns - since_ns) / 60e9))

    def _problem(self, service: str | None) -> ToolAnswer | None:
        if not self.recording.has("spans"):
            return not_recorded("this recording has no spans")
        known = self.recording.services
        return absent("service", service, known) if service is not None and service not in known else None


def _failed(spans: pd.DataFrame) -> pd.Series:
    return (spans["status"] == "error") | is_error_code(spans["status_code"])


def _lines(spans: pd.DataFrame) -> list[tuple[object, ...]]:
    failed = _failed(spans)
    return [
        (
            stamp(time.value),
            trace,
            service,
            f"{kind} -> {peer}" if isinstance(peer, str) else kind,
            operation,
            f"{duration / 1e6:.1f}",
            ("error" if bad else status) + ("" if np.isnan(code) else f" {code:.0f}"),
        )
        for time, trace, service, kind, peer, operation, duration, status, code, bad in zip(
            spans["time"], spans["trace_id"], spans["service"], spans["kind"], spans["peer_service"],
            spans["operation"], spans["duration_ns"], spans["status"], spans["status_code"], failed, strict=True,
        )
    ]  # fmt: skip


def _tree(spans: pd.DataFrame) -> str:
    lines = dict(zip(spans["span_id"], _lines(spans), strict=True))
    parents = dict(zip(spans["span_id"], spans["parent_span_id"], strict=True))
    starts = dict(zip(spans["span_id"], spans["time"].astype("int64"), strict=True))
    children: dict[str | None, list[str]] = {}
    for span, parent in parents.items():
        children.setdefault(parent if parent in lines and parent != span else None, []).append(span)
    began = min(starts.values())
    shown: list[tuple[object, ...]] = []
    waiting = [(span, 0) for span in reversed(children.get(None, []))]
    while waiting:
        span, depth = waiting.pop()
        _, _, service, kind, operation, milliseconds, status = lines[span]
        shown.append(
            (f"{(starts[span] - began) / 1e6:.1f}", milliseconds, f"{'  ' * depth}{service}", kind, operation, status)
        )
        waiting += [(child, depth + 1) for child in reversed(children.get(span, []))]
    return folded_table(["AT MS", "MS", "SERVICE", "KIND", "OPERATION", "STATUS"], shown)


def _graph(spans: pd.DataFrame, minutes: float) -> str:
    frame = spans[["service", "peer_service", "kind", "duration_ns"]].assign(failed=_failed(spans))
    frame[["service", "peer_service"]] = frame[["service", "peer_service"]].astype(object)
    rows: list[tuple[object, ...]] = []
    for kind, keys in (("server", ["service"]), ("client", ["service", "peer_service"])):
        part = frame[frame["kind"] == kind]
        for key, group in part.groupby(keys):
            names = [str(name) for name in key]
            caller, callee = ("*", names[0]) if len(names) == 1 else names
            p95 = float(np.quantile(group["duration_ns"], 0.95)) / 1e6
            rows.append(
                (caller, callee, f"{len(group) / minutes:.1f}", f"{100 * group['failed'].mean():.1f} %", f"{p95:.1f}")
            )
    return folded_table(["CALLER", "CALLEE", "CALLS/MIN", "ERRORS", "P95 MS"], rows)
