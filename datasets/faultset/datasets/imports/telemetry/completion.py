"""Complete the rows of a window: add kinds, counts and peers, separate shared span ids, and drop duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.datasets.format.storage import SERIES_COLUMNS, as_array, in_one_chunk, order_of
from faultset.datasets.imports.columns import drop_repeats, encode_words, infer_kinds_and_peers, pc

_DELTA = "delta-"
_SHARED_SUFFIX = "5"
"""Suffix for the id of the server's half if client and server share a span, as they do in Zipkin."""


def drop_exact_repeats(rows: pa.Table) -> pa.Table:
    """Return the rows without the duplicates that overlapping files cause."""
    return drop_repeats(rows, [name for name in rows.column_names if name != "time"] + ["time"])


Totals = dict[tuple[Any, ...], float]
"""Series -> sum of its increases in earlier windows."""


def complete_metrics(rows: pa.Table, kinds_of: Mapping[str, str], totals: Totals | None = None) -> pa.Table:
    """Return samples with kinds, without duplicates, and with running counts instead of increases.

    `kinds_of` has the kinds that no file declares. `totals` has the sums of earlier windows and is updated in place.
    """
    metric = encode_words(rows["metric"])
    kinds = rows["kind"].cast(pa.string())
    declared = pa.array([kinds_of.get(name, "gauge") for name in metric.dictionary.to_pylist()], pa.string())
    kinds = pc.if_else(pc.equal(kinds, "unknown"), declared.take(metric.indices), kinds)
    rows = _replace(rows, "kind", kinds)
    rows = _drop_pod_totals(rows)
    rows = drop_repeats(rows, [*SERIES_COLUMNS, "time"])
    if pc.any(pc.starts_with(rows["kind"], _DELTA)).as_py():
        rows = _accumulate(rows, {} if totals is None else totals)
    return rows


def _replace(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def _drop_pod_totals(rows: pa.Table) -> pa.Table:
    """Remove cAdvisor's samples of whole pods and pause containers if the pod's other containers are recorded.

    They would be counted twice.
    """
    metric, pod = rows["metric"].cast(pa.string()), rows["pod"].cast(pa.string())
    is_of_cadvisor = pc.and_(pc.starts_with(metric, "container_"), pc.is_valid(pod))
    is_of_container = pc.and_(is_of_cadvisor, pc.invert(pc.starts_with(metric, "container_network_")))
    is_total = pc.is_in(pc.fill_null(rows["container"].cast(pa.string()), ""), pa.array(["", "POD"]))
    is_named = pc.and_(is_of_container, pc.invert(is_total))
    if not pc.any(is_named).as_py():
        return rows
    is_detailed = pc.is_in(pod, pc.unique(rows.filter(is_named)["pod"].cast(pa.string())))
    is_repeated = pc.and_(pc.and_(is_of_container, is_total), is_detailed)
    return rows.filter(pc.invert(pc.fill_null(is_repeated, False)))


def _accumulate(rows: pa.Table, totals: Totals) -> pa.Table:
    """Turn increases since the last sample into counts, and add them to the totals of their series."""
    rows, starts = _sort_by_series(rows)
    ends = np.append(starts, len(rows))[1:]
    is_delta = pc.starts_with(rows["kind"], _DELTA).to_numpy()
    values = rows["value"].to_numpy()
    running = np.cumsum(np.where(np.isfinite(values) & is_delta, values, 0.0))
    series = [tuple(row.values()) for row in rows.select(SERIES_COLUMNS).take(pa.array(starts)).to_pylist()]
    earlier = np.array([totals.get(key, 0.0) for key in series])
    before = np.concatenate([[0.0], running])[starts] - earlier
    counts = running - np.repeat(before, ends - starts)
    totals.update({key: float(counts[end - 1]) for key, end in zip(series, ends, strict=True) if is_delta[end - 1]})
    rows = _replace(rows, "value", pa.array(np.where(is_delta, counts, values)))
    kinds = pc.replace_substring_regex(rows["kind"], f"^{_DELTA}", "")
    return _replace(rows, "kind", kinds)


def _sort_by_series(rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Return the rows in order of series and time, and the position of the first row of each series."""
    rows = in_one_chunk(rows)
    order = order_of("metrics", rows)
    if order is not None:
        rows = in_one_chunk(rows.take(pa.array(order)))
    change = np.zeros(len(rows), dtype=bool)
    change[:1] = True
    for name in SERIES_COLUMNS:
        codes = as_array(rows[name]).indices.fill_null(-1).to_numpy(zero_copy_only=False)
        change[1:] |= codes[1:] != codes[:-1]
    return rows, np.flatnonzero(change)


def complete_spans(rows: pa.Table, names: Mapping[str, str | None]) -> pa.Table:
    """Return spans with distinct ids, kinds and peer services; `names` maps names of peers to services."""
    rows = _separate_shared(rows)
    rows = drop_repeats(rows, ["trace_id", "span_id"])
    service = rows["service"]
    kinds = rows["kind"].cast(pa.string())
    inferred_kinds, inferred_peers = infer_kinds_and_peers(rows["span_id"], rows["parent_span_id"], service)
    if not pc.any(pc.is_in(kinds, pa.array(["client", "server"]))).as_py():
        kinds = inferred_kinds.cast(pa.string())
    rows = _replace(rows, "kind", pa.chunked_array([kinds]) if isinstance(kinds, pa.Array) else kinds)
    peers = rows["peer_service"].cast(pa.string())
    named = {name: names[name] for name in pc.unique(peers).to_pylist() if name is not None and name in names}
    words = [named.get(peer, peer) if peer is not None else None for peer in peers.to_pylist()] if named else peers
    peers = pa.chunked_array([pa.array(words, pa.string())]) if named else peers
    callers = pc.is_in(kinds, pa.array(["client", "producer"]))
    peers = pc.if_else(pc.and_(pc.is_null(peers), callers), inferred_peers.cast(pa.string()), peers)
    return _replace(rows, "peer_service", peers)


def _separate_shared(rows: pa.Table) -> pa.Table:
    """If client and server share a span id, give the server's half its own id and the client's half as its parent.

    Spans of the server that name the shared id as their parent become children of the server's half.
    """
    keys = pc.binary_join_element_wise(rows["trace_id"], rows["span_id"], "-")
    if pc.count_distinct(keys).as_py() == len(rows):
        return rows
    frame = rows.select(["trace_id", "span_id", "parent_span_id", "kind", "service"]).to_pandas()
    same = ["trace_id", "span_id"]
    callers = frame["kind"].isin(["client", "producer"])
    has_caller = callers.groupby([frame[name] for name in same]).transform("any")
    halves = has_caller & frame["kind"].isin(["server", "consumer"])
    if not halves.any():
        return rows
    renamed = frame.loc[halves, [*same, "service"]].drop_duplicates()
    renamed_ids = {(t, s, str(v)) for t, s, v in renamed.itertuples(index=False)}
    span_ids, parents = frame["span_id"].tolist(), frame["parent_span_id"].tolist()
    for number, (trace, span, parent, service, half) in enumerate(
        zip(frame["trace_id"], frame["span_id"], frame["parent_span_id"], frame["service"], halves, strict=True)
    ):
        if half:
            span_ids[number], parents[number] = f"{span}{_SHARED_SUFFIX}", span
        elif (trace, parent, str(service)) in renamed_ids and parent != span:
            parents[number] = f"{parent}{_SHARED_SUFFIX}"
    for name, values in (("span_id", span_ids), ("parent_span_id", parents)):
        texts = [value if isinstance(value, str) else None for value in values]
        rows = _replace(rows, name, pa.array(texts, pa.string()))
    return rows


def find_calls(spans: pa.Table, services: Sequence[str]) -> tuple[set[tuple[str, str]], Counter[str]]:
    """Return the calls between services, and the number of traces that enter each service."""
    frame = spans.select(["trace_id", "span_id", "parent_span_id", "service"]).to_pandas()
    frame["service"] = frame["service"].astype(object)
    parents = frame[["trace_id", "span_id", "service"]].rename(
        columns={"span_id": "parent_span_id", "service": "caller"}
    )
    joined = frame.merge(parents, on=["trace_id", "parent_span_id"], how="left")
    joined = joined[joined["service"].notna()]
    pairs = joined[joined["caller"].notna() & (joined["caller"] != joined["service"])]
    calls = {(caller, callee) for caller, callee in pairs[["caller", "service"]].itertuples(index=False)}
    # Stores send no spans; their callers name them.
    named = spans.select(["service", "peer_service"]).group_by(["service", "peer_service"]).aggregate([]).to_pylist()
    calls |= {(row["service"], row["peer_service"]) for row in named if row["peer_service"] in services}
    roots = Counter(joined.loc[joined["parent_span_id"].isna(), "service"])
    return {(caller, callee) for caller, callee in calls if caller is not None and caller != callee}, roots


def interval_s(metrics: pa.Table) -> float | None:
    """Return the median time between the samples of a series, in seconds; None if no series has two samples."""
    rows, starts = _sort_by_series(metrics)
    times = rows["time"].cast(pa.int64()).to_numpy()
    inside = np.ones(max(0, len(times) - 1), dtype=bool)
    inside[starts[1:] - 1] = False
    steps = np.diff(times)[inside]
    steps = steps[steps > 0]
    if not len(steps):
        return None
    step_s = float(np.median(steps)) / 1e9
    whole = round(step_s) if step_s >= 0.95 else round(step_s, 3)
    return float(min(max(whole if abs(whole - step_s) <= 0.05 * step_s else step_s, 0.001), 86_400.0))
