"""The added sources that are installed, by name, and whether those of a campaign fit together."""

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
"""Tables to which a source may add rows; verdicts and health are judged from the others."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """An added source that can be used.

    Attributes
    ----------
    origin
        Its name, and the distribution that announces it.
    summary
        What it records, in one sentence.
    added_table
        The table of its own; None when it adds rows to one that every episode has.
    """

    name: str
    origin: str
    summary: str
    make: type[AddedSource]
    table: str
    added_table: AddedTable | None
    metric_roles: tuple[MetricRole, ...]

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the rows that it yields."""
        return without_episode(self.added_table.schema if self.added_table else TABLES[self.table])


def load_source(name: str) -> SourceSpec:
    """Return one source; raise UsageError when it is unknown, or its plug-in cannot be loaded or used."""
    return load_plugin(GROUP, name, kind="source", accept=source_spec)


def load_sources() -> dict[str, SourceSpec]:
    """Return every source that is installed, by name; a warning names any that cannot be used."""
    return load_plugins(GROUP, source_spec)


def source_spec(name: str, loaded: Any) -> SourceSpec:
    """Return what a class of a source declares; raise UsageError when that cannot be used."""
    require_class(loaded, "table", "interval_s", "start", "snapshot", "close")
    summary = (inspect.getdoc(loaded) or "").partition("\n")[0]
    if not summary.endswith("."):
        raise UsageError("the docstring of its class must begin with a sentence on what it records")
    announced = plugins(GROUP).get(name)
    origin = f"{name} of {announced.distribution}" if announced else f"{name} of {loaded.__module__}"
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
        make=loaded,
        table=table,
        added_table=added,
        metric_roles=roles,
    )


def _check_extension(table: str, columns: tuple[Any, ...], roles: tuple[MetricRole, ...]) -> None:
    if table not in EXTENSIBLE:
        raise UsageError(f"rows cannot be added to {table}; add to {', '.join(EXTENSIBLE)}, or name a table of its own")
    if columns:
        raise UsageError(f"the columns of {table} are known; leave columns out")
    if (table == "metrics") != bool(roles):
        raise UsageError("a source of metrics, and no other, declares what its metrics are in metric_roles")
    known = builtin_catalogue()
    if taken := [role.metric for role in roles if "*" in role.metric or known.find(role.metric)]:
        raise UsageError(f"the metrics {', '.join(taken)} must have whole names that the built-in catalogue has not")


def check_together(specs: Iterable[SourceSpec]) -> None:
    """Raise UsageError when two sources have the same table of their own, or the same metric."""
    owners: dict[str, str] = {}
    for spec in specs:
        own = [f"table {spec.table}"] if spec.added_table else [f"metric {role.metric}" for role in spec.metric_roles]
        for what in own:
            other = owners.setdefault(what, spec.name)
            if other != spec.name:
                raise UsageError(f"the sources {other} and {spec.name} both record the {what}; leave one of them out")
