"""The mapping file: names of services, roles of metrics, and how to read files that do not describe themselves."""

from __future__ import annotations

import fnmatch
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from faultset.core.documents import STRICT, check_type, parse_yaml, read_yaml_text
from faultset.core.errors import UsageError, unknown_name
from faultset.core.printable import quoted
from faultset.datasets.format.schemas import Name
from faultset.datasets.imports.telemetry.times import parse_time
from faultset.datasets.metrics.roles import KINDS, ROLES

Signal = Literal["metrics", "spans", "logs", "events"]
MODIFIED = "modified"
"""Value of `FileRule.time`: use the time at which the file was last changed."""


@dataclass(frozen=True, kw_only=True)
class FileRule:
    """How to read the files that a pattern matches."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    match: Name
    """Pattern of paths, such as `logs/*.txt`."""
    skip: bool = False
    """Whether to leave the files out."""
    service: Name = ""
    """Service of rows without a service."""
    pod: Name = ""
    """Pod of rows without a pod."""
    container: Name = ""
    """Container of rows without a container."""
    time: Name = ""
    """Time of records without a time; `modified` for the time at which the file was last changed."""
    time_zone: Name = ""
    """Zone of local times, such as Europe/Berlin."""
    pattern: Name = ""
    """Regular expression of a log line, with the groups time, message, and optionally level, service, pod, trace_id."""
    signal: Signal | None = None
    """Signal that a table contains."""
    columns: Mapping[Name, Name] = field(default_factory=dict[str, str])
    """Our name of a column -> its name in the table."""
    separator: Name = ""
    """Text between the service and the metric in the column names of a wide table; `/` by default."""
    kind: Literal["gauge", "counter"] = "gauge"
    """Kind of all metrics in a wide table."""


@dataclass(frozen=True, kw_only=True)
class TelemetryMapping:
    """Content of a mapping file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    app: Name = "app"
    """Name of the application."""
    time_zone: Name = "UTC"
    """Zone of local times."""
    services: Mapping[Name, Name | None] = field(default_factory=dict[str, "str | None"])
    """Name in the data -> service in the dataset; null for rows that belong to no service."""
    roles: Mapping[Name, Name] = field(default_factory=dict[str, str])
    """Metric, or a pattern with `*` -> its role."""
    calls: tuple[tuple[Name, Name], ...] = ()
    """Calls between services that traces do not show, as caller and callee."""
    files: tuple[FileRule, ...] = ()
    """Rules for files; the first that matches applies."""

    def __post_init__(self) -> None:
        for name in {self.time_zone, *(rule.time_zone for rule in self.files)} - {""}:
            zone_of(name)
        for role in self.roles.values():
            if role not in ROLES:
                raise unknown_name("role", role, ROLES)
        for rule in self.files:
            _check_rule(rule)

    def rule_for(self, name: str) -> FileRule:
        """Return the rule for a file; `name` is its path below the folder that the user gave."""
        for rule in self.files:
            if fnmatch.fnmatch(name, rule.match) or fnmatch.fnmatch(Path(name).name, rule.match):
                return rule
        return FileRule(match="*")


def _check_rule(rule: FileRule) -> None:
    if rule.pattern:
        try:
            groups = re.compile(rule.pattern).groupindex
        except re.error as error:
            raise UsageError(f"the pattern for {rule.match} must be a regular expression: {error}") from None
        missing = {"time", "message"} - groups.keys()
        if missing:
            raise UsageError(
                f"the pattern for {rule.match} must have the groups time and message, but lacks "
                f"{' and '.join(sorted(missing))}"
            )
    if rule.time and rule.time != MODIFIED and parse_time(rule.time) is None:
        raise UsageError(
            f"the time for {rule.match} must be {MODIFIED} or a time such as 2026-03-01T10:00:00Z, "
            f"got {quoted(rule.time)}"
        )
    assert rule.kind in KINDS


def zone_of(name: str) -> tzinfo:
    """Return a time zone; raise UsageError for an unknown name."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"time_zone must be a name such as UTC or Europe/Berlin, got {quoted(name)}") from None


def read_mapping(path: Path) -> TelemetryMapping:
    """Read a mapping file; raise UsageError if it is missing or invalid."""
    content = parse_yaml(read_yaml_text(path, "mapping file"), str(path))
    return check_type({} if content is None else content, TelemetryMapping, str(path), error=UsageError)
