"""What features are counted from: wide metrics, log lines by template, calls between services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError
from faultset.datasets.log_masks import masked_column
from faultset.datasets.recorded_tables import read_table, read_wide
from faultset.datasets.status_codes import is_error_code

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_SPAN_COLUMNS = ("time", "trace_id", "span_id", "parent_span_id", "service", "peer_service", "kind", "duration_ns")


def metric_frame(view: EpisodeView, step_s: float, roles: Sequence[str] | None) -> pd.DataFrame:
    """Return the wide metrics of some roles; no columns where the episode has no metrics."""
    if roles is None:
        return read_wide(view, step_s)
    try:
        return view.wide(step_s, roles)
    except DataError as error:
        if not isinstance(error.__context__, FileNotFoundError):
            raise
        return read_wide(view, step_s)


def log_lines(view: EpisodeView) -> pd.DataFrame:
    """Return time (ns), service and template of every line of a candidate; numbers and ids are masked."""
    table = read_table(view, "logs", ("time", "service", "message"))
    frame = pd.DataFrame(
        {
            "time": table["time"].cast(pa.int64()).to_numpy(),
            "service": table["service"].cast(pa.string()).to_numpy(zero_copy_only=False),
            "template": masked_column(table["message"]).to_numpy(zero_copy_only=False),
        }
    )
    return frame[frame["service"].isin(view.services)]


def line_counts(view: EpisodeView) -> Counter[tuple[str, str]]:
    """Count lines by service and template."""
    lines = log_lines(view)
    sizes = lines.groupby(["service", "template"], observed=True).size()
    return Counter({(str(service), str(text)): int(n) for (service, text), n in sizes.items()})  # type: ignore[misc]


def service_calls(view: EpisodeView) -> pd.DataFrame:
    """Return edge ("caller->callee"), end (ns), duration (s) and failure of every call between services.

    A call is a client span that names its peer. Where no span does, it is a span whose parent belongs to another
    service.
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
    """Count calls by edge."""
    return Counter(service_calls(view)["edge"].tolist())
