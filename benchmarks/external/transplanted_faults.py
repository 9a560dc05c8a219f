"""Score methods on faults that none was tuned on, simulated by changing healthy requests of Nezha's data.

    python benchmarks/external/transplanted_faults.py PATH [--baselines NAMES] [--per-kind 12] [--seed 0] [--json]

PATH is Nezha's folder or archive, or a dataset that was imported from it. Stretches between the announcement of a
fault and its first effect are healthy. From a random time on, their requests are changed as if by a fault in a random
service:

delay       every packet that leaves the service, also to its store, takes longer
return      a method returns early: log lines and calls after a random log line of it are missing
exception   as `return`, and a log line with an exception is added
cpu         the service's own code takes four times as long, and its CPU metrics are at the limit

Services and lines are drawn from the whole reference, not only from services with faults in the source. Callers do not
react, so the faults are simpler than real ones. They show whether a method works for other services and kinds of fault,
not how good it is. Methods run in this process and get the true onset.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.baselines.contract import Localizer
from faultset.baselines.registry import get_baseline
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.views import EpisodeView
from faultset.evaluators.scoring.localization import score_ranking

MIN_HEALTHY_S, SHOWN_S = 118, 116
"""Seconds without an effect, and how many of them become an episode."""
ONSET_S = (25, 45)
DELAYS_S = (0.05, 0.4)
KINDS = ("delay", "return", "exception", "cpu")
STORE = r"^(?:SELECT|INSERT|UPDATE|DELETE|find|Session\.|Transaction\.)"
MIN_OCCURRENCES = 8
METHODS = ("nezha-patterns", "nezha", "pdiagnose", "event-log", "loudest-log", "tracerca", "circa", "random")


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Tables of a healthy stretch with its reference, times as integers."""

    view: EpisodeView
    avoided: str
    """Service with the source's fault; never chosen."""
    spans: pd.DataFrame
    logs: pd.DataFrame
    metrics: pd.DataFrame
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A simulated fault."""

    kind: str
    service: str
    onset_ns: int
    detail: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--baselines", default=",".join(METHODS))
    parser.add_argument("--per-kind", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        changed_episodes = episodes(options.path, out, options.per_kind, options.seed)
        results = [
            {"baseline": name, "kind": fault.kind, "service": fault.service, "detail": fault.detail, **scores}
            for fault, view in changed_episodes
            for name, scores in answers(options.baselines.split(","), view, fault)
        ]
    frame = pd.DataFrame(results)
    if options.json:
        print(json.dumps(results))
        return
    print(frame.pivot_table(index="baseline", columns="kind", values="top1", margins=True).round(2).to_string())
    print(frame.groupby("baseline")[["top1", "top3", "top5"]].mean().round(3).to_string())
    missed = frame[(frame["baseline"] == options.baselines.split(",")[0]) & (frame["top1"] < 1)]
    print(missed[["kind", "service", "detail", "first"]].to_string())


def answers(names: Sequence[str], view: EpisodeView, fault: Fault) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each method's chances of ranking the service among the first 1, 3 and 5."""
    for name in names:
        method = get_baseline(name).build()
        if not isinstance(method, Localizer):
            raise SystemExit(f"{name} is not a localizer; name localizers only")
        ranking = method.localize(view, fault.onset_ns)
        score = score_ranking(ranking.scores, [frozenset({fault.service})], view.services)
        first = ranking.ordered[0] if ranking.ordered else ""
        yield name, {"top1": score.hit(1), "top3": score.hit(3), "top5": score.hit(5), "first": first}


def episodes(path: Path, out: Path, per_kind: int, seed: int) -> Iterator[tuple[Fault, EpisodeView]]:
    """Yield changed episodes."""
    real = path if (path / "versions").is_dir() else out / "real"
    if real != path:
        import_dataset("nezha", path, real, workers=2)
    stretches = healthy_stretches(real)
    rng = np.random.default_rng(seed)
    for number in range(per_kind * len(KINDS)):
        kind = KINDS[number % len(KINDS)]
        stretch = stretches[int(rng.integers(len(stretches)))]
        fault, changed = CHANGES[kind](stretch, rng)
        yield fault, _write_episode(changed, out / "changed", f"changed-{number}")


def healthy_stretches(root: Path) -> list[Stretch]:
    """Return the starts of episodes with a late effect, with their references."""
    dataset = open_dataset(root)
    stretches = []
    for episode in dataset.episodes:
        label, view = dataset.label(episode), dataset.view(episode)
        end_ns = view.reference[1] + SHOWN_S * SECOND_NS
        if label.effective_ns is None or label.effective_ns < view.reference[1] + MIN_HEALTHY_S * SECOND_NS:
            continue
        tables = {}
        for name in ("spans", "logs", "metrics"):
            frame = getattr(view, name)()
            frame["time"] = frame["time"].astype("int64")
            tables[name] = frame[frame["time"] < end_ns].drop(columns="episode").reset_index(drop=True)
        stretches.append(Stretch(view=view, avoided=label.targets[0], end_ns=end_ns, **tables))
    return stretches


def _add_delay(stretch: Stretch, rng: np.random.Generator) -> tuple[Fault, Stretch]:
    service, onset_ns = _draw_service(stretch, rng), _draw_onset(stretch, rng)
    delay_ns = round(rng.uniform(*DELAYS_S) * SECOND_NS)
    changed = _retime(stretch, onset_ns, service, delay_ns, 1.0)
    return Fault(kind="delay", service=service, onset_ns=onset_ns, detail=f"{delay_ns / 1e6:.0f} ms"), changed


def _slow_down(stretch: Stretch, rng: np.random.Generator) -> tuple[Fault, Stretch]:
    service, onset_ns = _draw_service(stretch, rng), _draw_onset(stretch, rng)
    changed = _retime(stretch, onset_ns, service, 0, 4.0)
    metrics = changed.metrics.copy()
    later = (metrics["time"] > onset_ns) & (metrics["service"] == service)
    metrics.loc[later & (metrics["metric"] == "CpuUsageRate(%)"), "value"] = rng.uniform(80, 100)
    metrics.loc[later & (metrics["metric"] == "CpuUsage(m)"), "value"] *= 40
    return Fault(kind="cpu", service=service, onset_ns=onset_ns, detail="x4"), replace(changed, metrics=metrics)


def _return_early(stretch: Stretch, rng: np.random.Generator) -> tuple[Fault, Stretch]:
    return _cut(stretch, rng, "return")


def _throw_exception(stretch: Stretch, rng: np.random.Generator) -> tuple[Fault, Stretch]:
    return _cut(stretch, rng, "exception")


CHANGES = {"delay": _add_delay, "return": _return_early, "exception": _throw_exception, "cpu": _slow_down}


def _cut(stretch: Stretch, rng: np.random.Generator, kind: str) -> tuple[Fault, Stretch]:
    """Remove everything after a line in its span: later lines, later calls and their descendants."""
    onset_ns = _draw_onset(stretch, rng)
    spans, logs = stretch.spans, stretch.logs.sort_values("time", kind="stable")
    places = logs["message"].str.extract(r"^(\S+#\d+)")[0]
    last = logs.groupby("span_id")["time"].transform("max")
    usable = places.notna() & (logs["time"] < last) & (logs["service"] != stretch.avoided)
    usable &= logs["time"] < stretch.view.reference[1]
    counts = pd.Series(list(zip(logs["service"].astype(str), places, strict=True)), index=logs.index)[
        usable
    ].value_counts()
    chosen = sorted(counts[counts >= MIN_OCCURRENCES].index)
    service, line = chosen[int(rng.integers(len(chosen)))]
    begun = _traces_after(spans, onset_ns)
    hits = logs[(places == line) & (logs["service"] == service) & logs["trace_id"].isin(begun)]
    cuts = hits.drop_duplicates("span_id").set_index("span_id")["time"]
    gone_spans = _find_descendants(spans, spans[(spans["parent_span_id"].map(cuts) < spans["time"])]["span_id"])
    gone_lines = (logs["span_id"].map(cuts) < logs["time"]) | logs["span_id"].isin(gone_spans)
    remaining = logs[~gone_lines]
    if kind == "exception":
        thrown = hits.drop_duplicates("span_id").copy()
        thrown["time"] += 300_000
        thrown["level"] = "error"
        thrown["message"] = "o.a.c.c.C.[.[.[.[dispatcherServlet]#175 Servlet.service() threw exception"
        remaining = pd.concat([remaining, thrown], ignore_index=True)
    changed = replace(stretch, spans=spans[~spans["span_id"].isin(gone_spans)], logs=remaining)
    return Fault(kind=kind, service=service, onset_ns=onset_ns, detail=f"after {line}"), changed


def _retime(stretch: Stretch, onset_ns: int, service: str, delay_ns: int, factor: float) -> Stretch:
    """Delay a service's packets, scale its own time, and shift all later spans of each request."""
    spans = stretch.spans.copy()
    start, length = spans["time"].to_numpy().copy(), spans["duration_ns"].to_numpy().copy()
    owner = spans["service"].astype(str).to_numpy()
    store = spans["operation"].astype(str).str.match(STORE).to_numpy()
    begins, ids = spans["time"].to_numpy(), [str(span) for span in spans["span_id"]]
    row_of = {span: row for row, span in enumerate(ids)}
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(spans["parent_span_id"]):
        children.setdefault(row_of.get(parent, -1), []).append(row)
    begun = set(_traces_after(spans, onset_ns))
    shifts: dict[str, tuple[list[int], list[int]]] = {}

    def move_span(row: int, moved: int) -> int:
        """Move a span and its descendants; return the increase of its duration."""
        old, grown = int(start[row]), 0
        inside = owner[row] == service
        last, times, added = old, [], []
        for child in sorted(children.get(row, []), key=lambda child: int(begins[child])):
            begin = int(start[child])
            grown += round((factor - 1) * max(0, begin - last)) if inside else 0
            crossing = owner[child] != owner[row]
            out = delay_ns if crossing and inside else 0
            back = delay_ns if crossing and owner[child] == service else 0
            last = max(last, begin + int(length[child]))
            grown += out + move_span(child, moved + grown + out) + back
            times.append(last)
            added.append(grown)
        grown += round((factor - 1) * max(0, old + int(length[row]) - last)) if inside else 0
        grown += delay_ns if inside and store[row] and not children.get(row) else 0
        shifts[ids[row]] = ([old, *times], [moved, *(moved + more for more in added)])
        start[row], length[row] = old + moved, length[row] + grown
        return grown

    for root in children[-1]:
        if spans["trace_id"].iat[root] in begun:
            move_span(root, 0)
    logs = stretch.logs.copy()
    later = logs["trace_id"].isin(begun)
    logs.loc[later, "time"] = [
        time + _shift_at(shifts.get(span), time)
        for time, span in zip(logs.loc[later, "time"], logs.loc[later, "span_id"], strict=True)
    ]
    return replace(stretch, spans=spans.assign(time=start, duration_ns=length), logs=logs)


def _shift_at(shift: tuple[list[int], list[int]] | None, time: int) -> int:
    if shift is None:
        return 0
    return shift[1][max(0, int(np.searchsorted(shift[0], time, side="right")) - 1)]


def _find_descendants(spans: pd.DataFrame, first: pd.Series) -> set[str]:
    gone = set(first)
    while True:
        more = set(spans[spans["parent_span_id"].isin(gone)]["span_id"]) - gone
        if not more:
            return gone
        gone |= more


def _traces_after(spans: pd.DataFrame, onset_ns: int) -> pd.Index:
    began = spans.groupby("trace_id")["time"].min()
    return began[began >= onset_ns].index


def _draw_service(stretch: Stretch, rng: np.random.Generator) -> str:
    """Draw a service that served enough requests in the reference."""
    spans = stretch.spans[(stretch.spans["time"] < stretch.view.reference[1]) & (stretch.spans["kind"] == "server")]
    counts = spans["service"].astype(str).value_counts()
    entry = stretch.view.context.workload_entry
    names = sorted(name for name in counts[counts >= MIN_OCCURRENCES].index if name not in (stretch.avoided, entry))
    return names[int(rng.integers(len(names)))]


def _draw_onset(stretch: Stretch, rng: np.random.Generator) -> int:
    return stretch.view.reference[1] + round(rng.uniform(*ONSET_S) * SECOND_NS)


def _write_episode(stretch: Stretch, root: Path, name: str) -> EpisodeView:
    changed = replace(stretch.view.context, episode=name, view_end_ns=stretch.end_ns)
    label = {"targets": [], "root_causes": [], "verdict": "unknown", "profile": "changed", "seed": 0} | dict.fromkeys(
        ("parameters", "workload", "host", "clock_offsets"), "{}"
    )
    windows = {
        "view_start": changed.view_start_ns,
        "view_end": stretch.end_ns,
        "reference_end": stretch.view.reference[1],
    }
    with EpisodeWriter(root, name) as writer:
        for table in ("spans", "logs", "metrics"):
            frame = getattr(stretch, table)
            schema = pa.schema([field for field in TABLES[table] if field.name != "episode"])
            frame = frame.assign(time=pd.to_datetime(frame["time"], utc=True)).sort_values("time", kind="stable")
            writer.write_table(table, [pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)])
        writer.write_context(changed)
        writer.write_truth(label | windows, [], None)
        folder = writer.commit()
    assert (folder / CONTEXT_FILE).is_file()
    return EpisodeView(folder)


if __name__ == "__main__":
    main()
