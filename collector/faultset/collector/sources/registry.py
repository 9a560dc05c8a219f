"""The registry of installed sources, and the check that a campaign's sources are compatible."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from faultset.collector.sources.contract import AddedSource
from faultset.core.errors import DataError, UsageError
from faultset.core.plugins import load_plugin, load_plugins, plugins, require_class
from faultset.datasets.format.schemas import TABLES, AddedTable, without_episode
from faultset.datasets.metrics.roles import MetricRole, builtin_catalogue

GROUP = "faultset.sources"
EXTENSIBLE = ("metrics", "spans", "logs", "events")
"""Tables to which a source may add rows; verdicts and health depend on the others."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """An installed source.

    Attributes
    ----------
    origin
        Its name and its distribution.
    summary
        One sentence about its rows.
    added_table
        Its new table; None if it adds rows to an existing one.
    """

    name: str
    origin: str
    summary: str
    source_class: type[AddedSource]
    table: str
    added_table: AddedTable | None
    metric_roles: tuple[MetricRole, ...]

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of its rows."""
        return without_episode(self.added_table.schema if self.added_table else TABLES[self.table])


def load_source(name: str) -> SourceSpec:
    """Return a source; raise UsageError if it is unknown or its plug-in is unusable."""
    return load_plugin(GROUP, name, kind="source", accept=source_spec)


def load_sources() -> dict[str, SourceSpec]:
    """Return all installed sources by name; warn about unusable ones."""
    return load_plugins(GROUP, source_spec)


def source_spec(name: str, loaded: Any) -> SourceSpec:
    """Build the spec of a source from its class; raise UsageError if the declaration is invalid."""
    require_class(loaded, "table", "interval_s", "start", "snapshot", "close")
    summary = (inspect.getdoc(loaded) or "").partition("\n")[0]
    if not summary.endswith("."):
        raise UsageError("the docstring of its class must start with a sentence on what it records; add one")
    plugin = plugins(GROUP).get(name)
    origin = f"{name} of {plugin.distribution}" if plugin else f"{name} of {loaded.__module__}"
    columns, roles = tuple(getattr(loaded, "columns", ())), tuple(getattr(loaded, "metric_roles", ()))
    table, added = str(loaded.table), None
    if table in TABLES:
        _check_extension(table, columns, roles)
    else:
        try:
            added = AddedTable(name=table, source=origin, meaning=summary, columns=columns)
        except DataError as error:
            raise UsageError(str(error)) from None
    return SourceSpec(
        name=name,
        origin=origin,
        summary=summary,
        source_class=loaded,
        table=table,
        added_table=added,
        metric_roles=roles,
    )


def _check_extension(table: str, columns: tuple[Any, ...], roles: tuple[MetricRole, ...]) -> None:
    if table not in EXTENSIBLE:
        raise UsageError(f"rows cannot be added to {table}; add to {', '.join(EXTENSIBLE)}, or name a new table")
    if columns:
        raise UsageError(f"the columns of {table} are fixed; leave columns out")
    if (table == "metrics") != bool(roles):
        raise UsageError("metric_roles must be declared by sources of metrics, and only by them; add or remove it")
    catalogue = builtin_catalogue()
    if invalid_names := [role.metric for role in roles if "*" in role.metric or catalogue.find(role.metric)]:
        raise UsageError(
            f"the metrics {', '.join(invalid_names)} must have names without * that are not in the built-in catalogue; "
            "rename them"
        )


def check_together(specs: Iterable[SourceSpec]) -> None:
    """Raise UsageError if two sources record the same new table or the same metric."""
    owners: dict[str, str] = {}
    for spec in specs:
        metrics = [f"metric {role.metric}" for role in spec.metric_roles]
        for item in [f"table {spec.table}"] if spec.added_table else metrics:
            other = owners.setdefault(item, spec.name)
            if other != spec.name:
                raise UsageError(f"the sources {other} and {spec.name} both record the {item}; leave one of them out")
