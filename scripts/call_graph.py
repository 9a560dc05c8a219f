"""Draw the calls between the services of an application from the spans of an episode.

`python scripts/call_graph.py DATASET EPISODE PICTURE` writes an SVG with services in columns by their distance from the
entry. The width of an arrow shows the frequency of the call.
"""

from __future__ import annotations

import math
import sys
from html import escape
from pathlib import Path

import pandas as pd

from faultset.datasets import open_dataset

WIDTH, HEIGHT, COLUMN, ROW, PAD = 176, 24, 236, 36, 14


Calls = dict[tuple[str, str], float]
"""(caller, callee) -> calls per request at the entry."""


def calls_per_request(spans: pd.DataFrame) -> Calls:
    """Return the calls between services and stores per request at the entry.

    A call is the span of a callee whose parent belongs to another service, or a client span whose peer sends no spans.
    """
    owner = spans.set_index("span_id")["service"].astype(str)
    callee = spans["service"].astype(str)
    caller = spans["parent_span_id"].map(owner)
    between = pd.DataFrame({"caller": caller, "callee": callee})[caller.notna() & (caller != callee)]
    peers = spans["peer_service"].astype("object")
    silent = spans[peers.notna() & ~peers.isin(set(callee))]
    stores = pd.DataFrame({"caller": silent["service"].astype(str), "callee": silent["peer_service"].astype(str)})
    requests = int(spans["parent_span_id"].isna().sum())
    counts = pd.concat([between, stores]).groupby(["caller", "callee"]).size().reset_index(name="count")
    columns_of = (counts[name].to_list() for name in ("caller", "callee", "count"))
    return {(source, target): count / max(requests, 1) for source, target, count in zip(*columns_of, strict=True)}


def columns(calls: Calls) -> list[list[str]]:
    """Arrange services in columns by the length of their longest path from the entry, close to their callers.

    A service without callers, such as a consumer of a queue, is directly before its callees.
    """
    edges = list(calls)
    depth = {name: 0 for edge in edges for name in edge}
    for _ in depth:
        for caller, callee in edges:
            depth[callee] = max(depth[callee], depth[caller] + 1)
    for name in depth.keys() - {callee for _, callee in edges}:
        depth[name] = min(depth[callee] for caller, callee in edges if caller == name) - 1
    placed: list[list[str]] = []
    for level in range(max(depth.values()) + 1):
        above = {name: row for column in placed for row, name in enumerate(column)}
        rows = {
            name: sum(callers) / len(callers)
            if (callers := [above[a] for a, b in edges if b == name and a in above])
            else 0
            for name in depth
            if depth[name] == level
        }
        placed.append(sorted(rows, key=lambda name: (rows[name], name)))
    return placed


def picture(calls: Calls) -> str:
    """Return the SVG."""
    placed = columns(calls)
    tallest = max(map(len, placed))
    spots = {
        name: (PAD + COLUMN * x, PAD + ROW * (y + (tallest - len(column)) / 2))
        for x, column in enumerate(placed)
        for y, name in enumerate(column)
    }
    width, height = COLUMN * (len(placed) - 1) + WIDTH + 2 * PAD, ROW * tallest + 2 * PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        "<style>.box { fill: #eef1f8; stroke: #5a6ea8 } text { fill: #1d2433 } "
        "path { fill: none; stroke: #5a6ea8 }</style>",
    ]
    for (caller, callee), rate in sorted(calls.items(), key=lambda call: -call[1]):
        (x1, y1), (x2, y2) = spots[caller], spots[callee]
        start, end, middle = x1 + WIDTH, x2, (x1 + WIDTH + x2) / 2
        thickness = max(0.6, 1.2 + 0.9 * math.log10(max(rate, 1e-3) * 10))
        parts.append(
            f'<path stroke-width="{thickness:.1f}" d="M{start:.0f} {y1 + HEIGHT / 2:.0f} C{middle:.0f} '
            f'{y1 + HEIGHT / 2:.0f} {middle:.0f} {y2 + HEIGHT / 2:.0f} {end:.0f} {y2 + HEIGHT / 2:.0f}">'
            f"<title>{escape(caller)} calls {escape(callee)}: {rate:.3g} per request</title></path>"
        )
    for name, (x, y) in spots.items():
        parts.append(f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>')
        parts.append(f'<text x="{x + WIDTH / 2:.0f}" y="{y + 16:.0f}" text-anchor="middle">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    folder, episode, target = sys.argv[1:]
    view = open_dataset(folder).view(episode)
    Path(target).write_text(picture(calls_per_request(view.table("spans").to_pandas())), encoding="utf-8")
