"""Which signal a metric carries: one catalogue from metric names to roles, units and ways to combine.

The catalogue is data (`metric_roles.csv`). An imported dataset adds rows of its own through the `metric_roles` of
its contexts; a row's metric may be a pattern with `*`.
"""

from __future__ import annotations

import csv
import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.suggestions import unknown_name

ROLES = (
    "cpu",
    "throttling",
    "memory",
    "network",
    "disk",
    "traffic",
    "errors",
    "latency",
    "saturation",
    "restarts",
    "state",
    "threads",
    "descriptors",
    "limits",
    "clock",
    "scrape",
    "other",
)
"""Every role; `other` is what the catalogue does not know."""

KINDS = ("counter", "gauge", "histogram")
COMBINATIONS = ("sum", "mean", "min", "max")

# What a clock shows, a limit allows or a scrape costs is no sign of health; a generation counts decisions.
_EXCLUDED_ROLES = frozenset({"clock", "limits", "scrape"})
_EXCLUDED_SUFFIX = "_generation"
_DERIVED = {"_mean": "latency", "_rate": "traffic", "_error_rate": "errors"}
_PARTS = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, kw_only=True)
class MetricRole:
    """One row of the catalogue."""

    source: str
    """Who exports the metric: cadvisor, kube-state, runtime, prometheus, or an importer's name."""
    metric: str
    """Name without the suffixes of a histogram's parts, or a pattern with `*`."""
    role: str
    unit: str
    """UCUM code of the raw sample: s, By, 1."""
    kind: str
    combine: str
    """How a service's pods, containers and label sets become one value; counters' rates are always summed."""
    keep_label: str = ""
    """Label that stays apart as `metric{label="value"}` in wide frames; empty for none."""
    meaning: str = ""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("role", self.role, ROLES),
            ("kind", self.kind, KINDS),
            ("combine", self.combine, COMBINATIONS),
        ):
            if value not in allowed:
                raise DataError(f'metric role of {self.metric}: {name} "{value}" must be one of {", ".join(allowed)}')


def role_row(fields: Mapping[str, str]) -> MetricRole:
    """Return a row of a catalogue from text fields; raise DataError for missing and unknown ones."""
    try:
        return MetricRole(**fields)
    except TypeError:
        wanted = list(MetricRole.__dataclass_fields__)
        raise DataError(
            f"a metric role has the fields {quoted(', '.join(fields))}, wanted are {', '.join(wanted)}; "
            "restore the episode's context.json"
        ) from None


class Catalogue:
    """Look-up from metric names to rows; exact names win over patterns, earlier rows over later ones."""

    def __init__(self, rows: Iterable[MetricRole]) -> None:
        self.rows = tuple(rows)
        self._exact: dict[str, MetricRole] = {}
        self._patterns: list[tuple[re.Pattern[str], MetricRole]] = []
        self._matched: dict[str, MetricRole | None] = {}
        self._roles: dict[str, str] = {}
        for row in self.rows:
            if "*" in row.metric:
                self._patterns.append((re.compile(fnmatch.translate(row.metric)), row))
            else:
                self._exact.setdefault(row.metric, row)

    def __reduce__(self) -> tuple[type[Catalogue], tuple[tuple[MetricRole, ...]]]:
        return Catalogue, (self.rows,)

    def find(self, metric: str) -> MetricRole | None:
        """Return the row for a metric as stored, part suffixes allowed; None when the catalogue has none."""
        found = self._match(metric)
        if found is None and _PARTS.search(metric):
            found = self._match(_PARTS.sub("", metric))
            if found is not None and found.kind != "histogram":
                found = None
        return found

    def role_of(self, metric: str) -> str:
        """Return the role of a stored metric or of a wide frame's column; `other` when unknown.

        Examples
        --------
        >>> builtin_catalogue().role_of("container_memory_rss")
        'memory'
        >>> builtin_catalogue().role_of("http_server_request_duration_seconds_rate")
        'traffic'
        """
        if metric not in self._roles:
            self._roles[metric] = self._find_role(metric)
        return self._roles[metric]

    def _find_role(self, metric: str) -> str:
        name = metric.partition("{")[0]
        row = self.find(name)
        if row is not None:
            return row.role
        for suffix in ("_error_rate", "_mean", "_rate"):
            if name.endswith(suffix) and self._match(name.removesuffix(suffix)) is not None:
                return _DERIVED[suffix]
        return "other"

    def stored_roles(self, metric: str) -> frozenset[str]:
        """Return the roles of all wide columns that a stored metric contributes to.

        A histogram's sum serves its mean, its count also the traffic and the errors; its buckets serve none.
        """
        row = self.find(metric)
        if row is None and metric.endswith("_bucket"):
            return frozenset()
        if row is None:
            return frozenset({"other"})
        if row.kind != "histogram":
            return frozenset({row.role})
        if metric.endswith("_bucket"):
            return frozenset()
        return frozenset({"latency"} if metric.endswith("_sum") else {"latency", "traffic", "errors"})

    def extended(self, rows: Iterable[Mapping[str, str]]) -> Catalogue:
        """Return a catalogue in which `rows` come before this one's."""
        added = [role_row(row) for row in rows]
        return Catalogue([*added, *self.rows]) if added else self

    def _match(self, name: str) -> MetricRole | None:
        if name not in self._matched:
            row = self._exact.get(name)
            if row is None:
                row = next((row for pattern, row in self._patterns if pattern.match(name)), None)
            self._matched[name] = row
        return self._matched[name]


@functools.cache
def builtin_catalogue() -> Catalogue:
    """Return the catalogue that comes with this release."""
    with files("faultset.datasets.metrics").joinpath("metric_roles.csv").open(encoding="utf-8") as file:
        return Catalogue([MetricRole(**row) for row in csv.DictReader(file)])


def catalogue_with(rows: Iterable[Mapping[str, str]]) -> Catalogue:
    """Return the built-in catalogue with other rows before it; equal rows give the same object."""
    return _catalogue_with(tuple(tuple(row.items()) for row in rows))


@functools.lru_cache(maxsize=64)
def _catalogue_with(rows: tuple[tuple[tuple[str, str], ...], ...]) -> Catalogue:
    return builtin_catalogue().extended(dict(row) for row in rows)


def role_of(metric: str) -> str:
    """Return the role of a metric in the built-in catalogue; `other` when it has none."""
    return builtin_catalogue().role_of(metric)


def is_health_metric(metric: str, role: str) -> bool:
    """Return whether a metric of that role can be a sign of health: clocks, limits, scrapes and generations cannot."""
    return role not in _EXCLUDED_ROLES and not metric.endswith(_EXCLUDED_SUFFIX)


def known_roles(roles: Iterable[str]) -> frozenset[str]:
    """Return the roles as a set; raise UsageError for one that does not exist."""
    chosen = frozenset([roles] if isinstance(roles, str) else roles)
    for role in sorted(chosen):
        if role not in ROLES:
            raise unknown_name("role", role, ROLES)
    return chosen
