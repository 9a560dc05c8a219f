"""Settings and output that the readers of one file share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from faultset.core.files import canonical_json
from faultset.datasets.imports.telemetry.redaction import HIDDEN
from faultset.datasets.imports.telemetry.rows import Origin, StagedRows
from faultset.datasets.imports.telemetry.times import parse_time
from faultset.datasets.telemetry_formats.log_lines import parse_record


@dataclass(kw_only=True)
class ReadingContext:
    """Destination of a file's rows, and their defaults from the mapping file or the path."""

    rows: StagedRows
    zone: tzinfo | None = None
    """Zone of local times."""
    origin: Origin = field(default_factory=Origin)
    """Origin of records that do not name their own."""
    last_log_ns: int | None = None
    """Time of the last log record that was read."""

    def parse_time(self, value: Any) -> int | None:
        """Return a time in UTC nanoseconds; None if it is not a time."""
        return parse_time(value, self.zone)

    def attributes(self, facts: Mapping[str, Any]) -> str:
        """Return attributes as canonical JSON without secrets."""
        redact = self.rows.redact
        shown: dict[str, Any] = {}
        for name, value in facts.items():
            if redact.hides_key(name):
                redact.changed += 1
                value = HIDDEN
            elif isinstance(value, str):
                value = redact.hide(value)
            elif isinstance(value, float) and not -1e308 <= value <= 1e308:
                value = str(value)
            shown[name] = value
        try:
            return canonical_json(shown)
        except (TypeError, ValueError):
            return canonical_json({name: str(value) for name, value in shown.items()})

    def add_log(
        self,
        origin: Origin,
        time_ns: int | None,
        text: str,
        *,
        level: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
    ) -> None:
        """Add a log record; missing fields are parsed from its text."""
        line = parse_record(text)
        self.last_log_ns = time_ns or self.last_log_ns
        row = {
            "level": level or line.level,
            "message": self.rows.redact.hide(line.message),
            "trace_id": trace_id or line.trace_id,
            "span_id": span_id or line.span_id,
        }
        self.rows.add("logs", origin, time_ns, row)
