"""Tools about log lines."""

from __future__ import annotations

import re
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from faultset.datasets.tools.clock import stamp
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.state_tools import Cursor, Limit, ServiceFilter, SinceS
from faultset.datasets.tools.text_tables import folded_table
from faultset.datasets.tools.tool_answers import ToolAnswer, absent, empty, found, invalid, not_recorded

LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
_LONGEST_LINE = 1000
_PATTERNS = 40


class LogTools:
    """Tools that read the log lines."""

    recording: Recording

    def get_logs(
        self,
        service: ServiceFilter = None,
        pod: Annotated[str | None, Field(description="Only of this pod.")] = None,
        level: Annotated[str | None, Field(description=f"Only of this level or above: {', '.join(LEVELS)}.")] = None,
        pattern: Annotated[str | None, Field(max_length=200, description="Only lines that contain this text.")] = None,
        since_s: SinceS = None,
        limit: Limit = 100,
        cursor: Cursor = 0,
    ) -> ToolAnswer:
        """Show log lines, the newest `limit` of them in their order; `cursor` passes over newer ones."""
        problem = self._problem(service)
        if problem:
            return problem
        if level is not None and level.lower() not in LEVELS:
            return invalid(f'levels are {", ".join(LEVELS)}, not "{level[:40]}"')
        since_ns = self.recording.clock.since_ns(since_s)
        lines = self.recording.frame("logs", since_ns)
        if pod is not None:
            pods = set(lines["pod"]) | set(self.recording.objects("Pod") if self.recording.has("objects") else ())
            if pod not in pods:
                return absent("pod", pod, pods)
            lines = lines[lines["pod"] == pod]
        if service is not None:
            lines = lines[lines["service"] == service]
        if level is not None:
            lines = lines[lines["level"].isin(LEVELS[LEVELS.index(level.lower()) :])]
        if pattern is not None:
            lines = lines[lines["message"].str.contains(re.escape(pattern), case=False)]
        if not len(lines):
            return empty(f"no such line from {stamp(since_ns)} to {stamp(self.recording.clock.now_ns)}")
        end = max(0, len(lines) - cursor)
        part = lines.iloc[max(0, end - limit) : end]
        text = "\n".join(
            f"{stamp(time.value)} {pod} {level if isinstance(level, str) else '-'} {message[:_LONGEST_LINE]}"
            for time, pod, level, message in zip(part["time"], part["pod"], part["level"], part["message"], strict=True)
        )
        if not text:
            return empty(f"{len(lines)} lines, and the cursor passes over all of them")
        return found(text, cursor + limit if end > limit else None)

    def log_patterns(self, service: ServiceFilter = None) -> ToolAnswer:
        """Count kinds of log lines, numbers masked, in the healthy reference and after it, per minute."""
        problem = self._problem(service)
        if problem:
            return problem
        lines = self.recording.log_patterns()
        if service is not None:
            lines = lines.filter(pc.equal(lines["service"].cast(pa.string()), service))  # type: ignore[attr-defined]
        if not len(lines):
            return empty("no log line" + (f" of {service}" if service else ""))
        return found(_pattern_table(lines, self.recording))

    def _problem(self, service: str | None) -> ToolAnswer | None:
        if not self.recording.has("logs"):
            return not_recorded("this recording has no log lines")
        known = self.recording.services
        return absent("service", service, known) if service is not None and service not in known else None


def _pattern_table(lines: pa.Table, recording: Recording) -> str:
    context, clock = recording.context, recording.clock
    later = pc.greater_equal(lines["time"], context.reference_end_ns)  # type: ignore[attr-defined]
    keys = ["service", "level", "pattern"]
    groups = lines.select(keys).append_column("later", later.cast(pa.int64())).group_by(keys)
    counts = groups.aggregate([("later", "sum"), ([], "count_all")]).to_pandas()
    before_min = (min(context.reference_end_ns, clock.now_ns) - clock.start_ns) / 60e9
    after_min = max(0.0, (clock.now_ns - context.reference_end_ns) / 60e9)
    counts["before"] = (counts["count_all"] - counts["later_sum"]) / before_min
    counts["after"] = counts["later_sum"] / after_min if after_min else 0.0
    counts["change"] = (counts["after"] - counts["before"]).abs()
    counts = counts.sort_values("change", ascending=False, kind="stable").head(_PATTERNS)
    rows = [
        (f"{before:.1f}", f"{after:.1f}", *(word if isinstance(word, str) else "-" for word in words))
        for before, after, *words in zip(counts["before"], counts["after"], *(counts[key] for key in keys), strict=True)
    ]
    return folded_table(["REFERENCE/MIN", "AFTER/MIN", "SERVICE", "LEVEL", "PATTERN"], rows)
