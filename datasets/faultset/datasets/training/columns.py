"""Feature columns: chosen from training episodes and the same in every episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeVar, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError, UsageError, unknown_name
from faultset.core.times import step_seconds
from faultset.datasets.log_masks import mask_column
from faultset.datasets.metrics.roles import ROLES, is_health_metric, parse_roles
from faultset.datasets.status_codes import is_error_code
from faultset.datasets.views import read_table, read_wide

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_SPAN_COLUMNS = ("time", "trace_id", "span_id", "parent_span_id", "service", "peer_service", "kind", "duration_ns")


def metric_frame(view: EpisodeView, step_s: float, roles: Sequence[str] | None) -> pd.DataFrame:
    """Return the wide metrics of some roles; without columns if the episode has no metrics."""
    if roles is None:
        return read_wide(view, step_s)
    try:
        return view.wide(step_s, roles)
    except DataError as error:
        if not isinstance(error.__context__, FileNotFoundError):
            raise
        return read_wide(view, step_s)


def log_lines(view: EpisodeView) -> pd.DataFrame:
    """Return the time (ns), service and template (with masked numbers and ids) of each log line of a candidate
    service."""
    table = read_table(view, "logs", ("time", "service", "message"))
    frame = pd.DataFrame(
        {
            "time": table["time"].cast(pa.int64()).to_numpy(),
            "service": table["service"].cast(pa.string()).to_numpy(zero_copy_only=False),
            "template": mask_column(table["message"]).to_numpy(zero_copy_only=False),
        }
    )
    return frame[frame["service"].isin(view.services)]


def line_counts(view: EpisodeView) -> Counter[tuple[str, str]]:
    lines = log_lines(view)
    sizes = lines.groupby(["service", "template"], observed=True).size()
    return Counter({(str(service), str(text)): int(n) for (service, text), n in sizes.items()})  # type: ignore[misc]


def service_calls(view: EpisodeView) -> pd.DataFrame:
    """Return the edge ("caller->callee"), end (ns), duration (s) and failure of every call between services.

    A call is a client span that names its peer. If there are no such spans, it is a span whose parent belongs to a
    different service.
    """
    table = read_table(view, "spans", (*_SPAN_COLUMNS, "status", "status_code"))
    code = pc.fill_null(table["status_code"], 0)  # type: ignore[attr-defined]
    text = {name: table[name].cast(pa.string()).to_numpy(zero_copy_only=False) for name in _TEXTS}
    frame = pd.DataFrame(
        {
            **text,
            "end": table["time"].cast(pa.int64()).to_numpy() + table["duration_ns"].to_numpy(),
            "seconds": table["duration_ns"].to_numpy() / 1e9,
            "failed": (text["status"] == "error") | is_error_code(code.to_numpy()),
        }
    )
    calls = frame[(frame["kind"] == "client") & frame["service"].notna() & frame["peer_service"].notna()]
    caller, callee = calls["service"], calls["peer_service"]
    if calls.empty and len(frame):
        keys = ["trace_id", "parent_span_id"]
        parents = frame[["trace_id", "span_id", "service"]].drop_duplicates(["trace_id", "span_id"])
        parents.columns = [*keys, "caller"]
        calls = frame.dropna(subset=["parent_span_id", "service"]).merge(parents, on=keys)
        calls = calls[calls["caller"].notna() & (calls["caller"] != calls["service"])]
        caller, callee = calls["caller"], calls["service"]
    edge = caller.astype(str) + "->" + callee.astype(str)
    return pd.DataFrame(
        {"edge": edge, "end": calls["end"], "seconds": calls["seconds"], "failed": calls["failed"].astype(np.float64)}
    )


_TEXTS = ("trace_id", "span_id", "parent_span_id", "service", "peer_service", "kind", "status")


def call_counts(view: EpisodeView) -> Counter[str]:
    return Counter(service_calls(view)["edge"].tolist())


Modality = Literal["metrics", "logs", "traces"]
"""A kind of telemetry for features."""
OTHER_LINES = "other lines"
"""Column for lines whose template has no column."""
CALL_FEATURES = ("calls", "errors", "latency_s")
LINE_FEATURES = ("lines", "new lines")
EACH_SERVICE = "service"
"""Owner of columns that every service has."""
Key = TypeVar("Key", str, tuple[str, str])


class Column(NamedTuple):
    modality: Modality
    owner: str
    """A service, or "caller->callee"."""
    what: str
    """A metric, a template, or one of `CALL_FEATURES`."""


@dataclass(frozen=True, kw_only=True)
class FeatureColumns:
    """The columns of feature arrays, in order."""

    columns: tuple[Column, ...]
    """The features."""
    step_s: float
    """Length of a step in seconds."""
    roles: tuple[str, ...] | None
    """Roles of the metrics; None for all."""
    is_per_service: bool = False
    """Whether each service has a row, with columns that have the same meaning in every application."""

    @classmethod
    def per_service(
        cls,
        *,
        step_s: float | str = 1.0,
        modalities: Sequence[Modality] = get_args(Modality),
        roles: Sequence[str] | None = None,
    ) -> Self:
        """Return columns for a row per service and step, the same in every application and episode.

        A value is log(1 + |deviation|) from the mean of the episode's reference, in standard deviations. There is a
        column for the most deviating metric of each role, for the number of log lines and of lines with new templates,
        and for the number, errors and latency of calls to the service. No episode is read.

        Parameters
        ----------
        step_s
            Length of a step in seconds, or text such as "5s".
        modalities
            Telemetry to read: "metrics", "logs", "traces".
        roles
            Roles of the metrics; all that may indicate health by default.

        Raises
        ------
        UsageError
            A modality, a role or the step is invalid.
        """
        seconds = _parse_step(step_s, modalities)
        health_roles = [role for role in ROLES if is_health_metric("", role)]
        if roles is not None and not parse_roles(roles) <= {*health_roles}:
            raise UsageError(f"`roles` must be among {', '.join(health_roles)}, got {', '.join(roles)}")
        used = tuple(role for role in health_roles if roles is None or role in roles)
        names: dict[Modality, tuple[str, ...]] = {"metrics": used, "logs": LINE_FEATURES, "traces": CALL_FEATURES}
        columns = tuple(Column(modality, EACH_SERVICE, name) for modality in modalities for name in names[modality])
        return cls(columns=columns, step_s=seconds, roles=used, is_per_service=True)

    @staticmethod
    def of(
        views: Iterable[EpisodeView],
        *,
        step_s: float | str = 1.0,
        modalities: Sequence[Modality] = get_args(Modality),
        roles: Sequence[str] | None = None,
        max_templates: int = 200,
        max_edges: int = 200,
    ) -> FeatureColumns:
        """Choose the columns from training episodes.

        Parameters
        ----------
        views
            Training episodes, read one at a time. Features that occur only in test episodes get no column, but lines
            with unknown templates are counted together for each service.
        step_s
            Length of a step in seconds, or text such as "5s".
        modalities
            Telemetry to read: "metrics", "logs", "traces".
        roles
            Roles of the metrics, for instance ("latency", "errors", "cpu"); all by default.
        max_templates, max_edges
            Maximum number of columns for log templates and for pairs of caller and callee; the most frequent are used.

        Raises
        ------
        UsageError
            A modality, a role or a number is invalid.
        DataError
            No episode has such telemetry.
        """
        finder = ColumnFinder(
            step_s=step_s, modalities=modalities, roles=roles, max_templates=max_templates, max_edges=max_edges
        )
        for view in views:
            finder.add(view)
        return finder.columns()

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each column, such as `metrics/geo/process_cpu_seconds_total`."""
        return tuple("/".join(column) for column in self.columns)

    def positions(self, modality: Modality) -> dict[tuple[str, str], int]:
        """Return the position of each column of a modality by its owner and feature."""
        return {(c.owner, c.what): position for position, c in enumerate(self.columns) if c.modality == modality}


class ColumnFinder:
    """Find the columns of episodes one at a time; `FeatureColumns.of` describes the parameters."""

    def __init__(
        self,
        *,
        step_s: float | str = 1.0,
        modalities: Sequence[Modality] = get_args(Modality),
        roles: Sequence[str] | None = None,
        max_templates: int = 200,
        max_edges: int = 200,
    ) -> None:
        self._step_s = _parse_step(step_s, modalities)
        if max_templates < 0 or max_edges < 0:
            raise UsageError(f"`max_templates` and `max_edges` must be 0 or more, got {max_templates} and {max_edges}")
        self._modalities, self._roles = modalities, None if roles is None else tuple(roles)
        self._max_templates, self._max_edges = max_templates, max_edges
        self._metrics: set[tuple[str, str]] = set()
        self._lines: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[str] = Counter()
        self._services: set[str] = set()

    def add(self, view: EpisodeView) -> None:
        if "metrics" in self._modalities:
            frame = metric_frame(view, self._step_s, self._roles)
            self._metrics |= {(str(service), str(name)) for service, name in frame.columns}
        if "logs" in self._modalities:
            lines = line_counts(view)
            self._lines.update(lines)
            self._services |= {service for service, _ in lines}
        if "traces" in self._modalities:
            self._calls.update(call_counts(view))

    def columns(self) -> FeatureColumns:
        """Return the columns of all added episodes; raise DataError if there are none."""
        columns = [Column("metrics", *key) for key in sorted(self._metrics)]
        columns += [Column("logs", *key) for key in sorted(_most_frequent(self._lines, self._max_templates))]
        columns += [Column("logs", service, OTHER_LINES) for service in sorted(self._services)]
        edges = sorted(_most_frequent(self._calls, self._max_edges))
        columns += [Column("traces", edge, what) for edge in edges for what in CALL_FEATURES]
        if not columns:
            raise DataError(f"features need {' or '.join(self._modalities)}, but no episode has any; choose others")
        return FeatureColumns(columns=tuple(columns), step_s=self._step_s, roles=self._roles)


def _parse_step(step_s: float | str, modalities: Sequence[Modality]) -> float:
    for name in modalities:
        if name not in get_args(Modality):
            raise unknown_name("modality", name, get_args(Modality))
    return step_seconds(step_s)


def _most_frequent(counts: Counter[Key], limit: int) -> list[Key]:
    return sorted(counts, key=lambda key: (-counts[key], key))[:limit]
