"""Effects of faults, and healthy systems, in several datasets side by side.

    python benchmarks/external/effect_sizes.py DATASET... [--traces FOLDER] [--limit 60]

A dataset is a folder that was collected or imported; the incidents of a recording are cut into episodes. `--traces`
names the folder of the recording of HotelReservation in https://github.com/alessandrocornacchia/uview, which has
durations of whole traces only, so only its entry is shown.

Healthy values are those of the reference. Effects compare the time after the onset, at most as long as the reference,
with the reference. They are measured at the target, its callers, the entry, and unrelated services, which neither reach
the target nor are reached by it. Latency is the 90th percentile of server spans, or the metric closest to it; CPU,
memory and log lines are means; errors are the share of failed server spans. A dash means that the dataset has no such
data.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Dataset, Episode
from faultset.datasets.views import EpisodeView

FAMILIES = {
    "cpu": r"cpu|hog|-gc$",
    "memory": r"memory|leak|^mem$",
    "network": r"network|delay|loss|jitter|bandwidth|partition|reset|abort|slow-(store|answers)",
    "code": r"return|exception|build|buggy|replica|-failure$",
    "pods": r"kill|pod|scale|node|image|binary|without-pv|probe",
}
OTHER = "configuration"
GROUPS = ("target", "callers", "entry", "unrelated")
MEASURES = ("cpu", "memory", "latency", "errors", "logs")
CHOSEN = {
    "cpu": r"container_cpu_usage_seconds_total|^CpuUsage\(m\)|^cpu$",
    "memory": r"container_memory_working_set_bytes|^MemoryUsage\(Mi\)|^mem$",
    "latency": r"^PodServerLatencyP90|^latency-90$",
}
"""Metric of each measure: cAdvisor's, Nezha's and RCAEval's."""
MIN_SPANS = 8

Window = tuple[int, int]
Values = dict[tuple[str, str], float]
"""Values by service and measure."""


def family_of(fault: str) -> str:
    """Return the family of a fault by its name."""
    return next((family for family, pattern in FAMILIES.items() if re.search(pattern, fault)), OTHER)


def service_groups(view: EpisodeView, targets: Iterable[str], serving: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the services of each group, without the targets in the last three.

    Parameters
    ----------
    serving
        Services with server spans; a load generator has none.
    """
    targets = frozenset(targets)
    callers, callees = {a for a, _ in view.calls}, {b for a, b in view.calls if a in serving}
    related = _reachable(targets, view.calls) | _reachable(targets, [(b, a) for a, b in view.calls])
    groups = {
        "callers": {caller for caller, callee in view.calls if callee in targets},
        "entry": callers & set(serving) - callees,
        "unrelated": set(view.services) - related,
    }
    return {"target": targets} | {group: frozenset(names) - targets for group, names in groups.items()}


def _reachable(starts: Iterable[str], calls: Iterable[tuple[str, str]]) -> set[str]:
    reached, waiting = set(starts), list(starts)
    while waiting:
        caller = waiting.pop()
        new = {callee for other, callee in calls if other == caller} - reached
        reached |= new
        waiting += new
    return reached


class Tables:
    """The tables of one episode, read once."""

    def __init__(self, view: EpisodeView):
        spans = view.table("spans", ["time", "service", "duration_ns", "status", "kind"]).to_pandas()
        self.spans = spans[spans["kind"] == "server"].drop(columns="kind")
        self.spans["time"] = self.spans["time"].astype("int64")
        self.serving = frozenset(self.spans["service"].astype(str))
        logs = view.table("logs", ["time", "service"]).to_pandas()
        self.logs = logs.assign(time=logs["time"].astype("int64"))
        self.wide = view.wide(1.0, roles=["cpu", "memory", "latency"])

    def values(self, window: Window) -> Values:
        """Return all values in a window."""
        start_ns, end_ns = window
        seconds = (end_ns - start_ns) / SECOND_NS
        values: Values = {}
        index = self.wide.index.astype("int64")
        levels = self.wide[(index >= start_ns) & (index < end_ns)].mean()
        for measure, pattern in CHOSEN.items():
            for (service, metric), level in zip(self.wide.columns, levels, strict=True):
                if re.search(pattern, metric) and np.isfinite(level):
                    values[service, measure] = float(level)
        lines = self.logs[(self.logs["time"] >= start_ns) & (self.logs["time"] < end_ns)]
        for service, count in lines["service"].astype(str).value_counts().items():
            values[str(service), "logs"] = count / seconds
        spans = self.spans[(self.spans["time"] >= start_ns) & (self.spans["time"] < end_ns)]
        for service, rows in spans.groupby(spans["service"].astype(str)):
            if len(rows) >= MIN_SPANS:
                values[str(service), "latency"] = float(rows["duration_ns"].quantile(0.9)) / 1e9
                values[str(service), "errors"] = float((rows["status"].astype(str) == "error").mean())
        return values


def change(measure: str, before: float, after: float) -> float:
    """Return the difference of shares, and the ratio of other values."""
    if measure == "errors":
        return after - before
    return after / before if before > 0 else np.nan


def measure_effects(episode: Episode, tables: Tables | None = None) -> dict[tuple[str, str], list[float]]:
    """Return the changes after the onset by group and measure, one per service; empty without a fault."""
    view, label, tables = episode.view, episode.label, tables or Tables(episode.view)
    start_ns, middle_ns = view.reference
    onset_ns = label.inject_start_ns
    effects: dict[tuple[str, str], list[float]] = defaultdict(list)
    if label.fault is None or onset_ns is None:
        return effects
    before = tables.values((start_ns, middle_ns))
    after = tables.values((onset_ns, min(view.window[1], onset_ns + middle_ns - start_ns)))
    for group, services in service_groups(view, label.targets, tables.serving).items():
        for key in product(services, MEASURES):
            if key in before and key in after:
                effects[group, key[1]].append(change(key[1], before[key], after[key]))
    return effects


class DatasetEffects:
    """The measurements on the episodes of one dataset."""

    def __init__(self, name: str):
        self.name = name
        self.changes: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        """By family, group and measure."""
        self.healthy: dict[str, list[float]] = defaultdict(list)

    def add(self, episode: Episode) -> None:
        """Add one episode."""
        tables = Tables(episode.view)
        self._add_healthy(episode.view, tables, tables.values(episode.view.reference))
        for (group, measure), effects in measure_effects(episode, tables).items():
            self.changes[family_of(episode.label.fault or ""), group, measure] += effects

    def _add_healthy(self, view: EpisodeView, tables: Tables, before: Values) -> None:
        start_ns, end_ns = view.reference
        entries = service_groups(view, (), tables.serving)["entry"]
        at_entry = tables.spans[tables.spans["service"].astype(str).isin(entries) & (tables.spans["time"] < end_ns)]
        if len(at_entry) >= MIN_SPANS:
            for share in (0.5, 0.9):
                self.healthy[f"entry p{share:.0%}"[:-1]].append(float(at_entry["duration_ns"].quantile(share)) / 1e6)
        for measure in ("cpu", "memory", "latency"):
            values = [value for (_, name), value in before.items() if name == measure and value > 0]
            if len(values) > 2:
                self.healthy[f"{measure} spread"].append(max(values) / min(values))
        middle_ns = (start_ns + end_ns) // 2
        first, second = tables.values((start_ns, middle_ns)), tables.values((middle_ns, end_ns))
        ratios = [second[key] / first[key] for key in first if key[1] == "latency" and second.get(key) and first[key]]
        self.healthy["noise"] += [float(abs(np.log(ratio)) > np.log(1.5)) for ratio in ratios]
        for measure in ("errors", "logs"):
            values = [value for (_, name), value in before.items() if name == measure]
            if values:
                self.healthy[measure].append(float(np.mean(values) if measure == "errors" else np.sum(values)))


HEALTHY = {
    "entry p50": "entry, median latency (ms)",
    "entry p90": "entry, 90th percentile (ms)",
    "cpu spread": "largest / smallest CPU of a service",
    "memory spread": "largest / smallest memory",
    "latency spread": "largest / smallest 90th percentile",
    "noise": "share of services whose 90th percentile differs by more than 1.5 between halves",
    "errors": "share of failed server spans",
    "logs": "log lines per second",
}


def describe(values: Iterable[float], *, is_share: bool = False) -> str:
    """Return median and quartiles."""
    finite: npt.NDArray[np.float64] = np.array([value for value in values if np.isfinite(value)])
    if not len(finite):
        return "-"
    if is_share:
        return f"{np.mean(finite):.3f}"
    low, median, high = (f"{value:.3g}" for value in np.quantile(finite, [0.25, 0.5, 0.75]))
    return f"{median} [{low}, {high}]"


def print_table(title: str, columns: list[str], rows: Mapping[str, list[str]]) -> None:
    """Print a table in Markdown, without rows that have no values."""
    lines = [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items() if set(cells) != {"-"}]
    if lines:
        click.echo(f"\n{title}\n\n| | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
        click.echo("\n".join(lines))


def choose_episodes(dataset: Dataset, limit: int) -> Iterable[Episode]:
    """Yield at most `limit` evenly spaced episodes, and all incidents of recordings as episodes."""
    names = sorted(dataset.episodes)
    for position in np.unique(np.linspace(0, len(names) - 1, min(limit, len(names))).astype(int)):
        yield dataset[names[position]]
    for recording in dataset.recordings():
        yield from recording.episodes(before_s=120, after_s=60, healthy=0)


def trace_effects(folder: Path) -> DatasetEffects:
    """Read the durations of whole traces, and their change after injections into any service."""
    effects = DatasetEffects("uview hotel")
    (path,) = folder.rglob("*frontend_service_process.csv.gz")
    (injections,) = folder.rglob("faults.csv")
    columns = ["trace", "duration_ms", "start_us", "end_us", "failed", "operation", "services"]
    traces = pd.read_csv(path, header=None, names=columns).sort_values("start_us")
    times = pd.to_datetime(traces["start_us"], unit="us", utc=True)
    faults = pd.read_csv(injections)
    starts, ends = (pd.to_datetime(faults[name], utc=True) for name in ("start", "end"))
    healthy = traces[times < starts.min()]
    for share in (0.5, 0.9):
        effects.healthy[f"entry p{share:.0%}"[:-1]] = [float(healthy["duration_ms"].quantile(share))]
    effects.healthy["errors"] = [float(healthy["failed"].mean())]
    usual = healthy["duration_ms"].quantile(0.9)
    for start, end in zip(starts, ends, strict=True):
        during = traces[(times >= start) & (times < end)]
        effects.changes["cpu", "entry", "latency"].append(float(during["duration_ms"].quantile(0.9) / usual))
    return effects


@click.command()
@click.argument("datasets", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--traces", type=click.Path(exists=True, path_type=Path), help="Folder of uview's recording.")
@click.option("--limit", default=60, show_default=True, help="Maximum number of episodes of a dataset.")
def main(datasets: tuple[Path, ...], traces: Path | None, limit: int) -> None:
    """Print healthy values and effects of all datasets side by side."""
    measured: list[DatasetEffects] = []
    for path in datasets:
        dataset = open_dataset(path)
        by_app: dict[str, DatasetEffects] = {}
        for episode in choose_episodes(dataset, limit):
            app = episode.view.context.app
            by_app.setdefault(app, DatasetEffects(f"{dataset.root.name} {app}")).add(episode)
        measured += by_app.values()
    if traces is not None:
        measured.append(trace_effects(traces))
    names = [effects.name for effects in measured]
    rows = {
        text: [describe(effects.healthy[key], is_share=key in ("noise", "errors")) for effects in measured]
        for key, text in HEALTHY.items()
    }
    print_table("Healthy: median [quartiles] over episodes", names, rows)
    for family in (*FAMILIES, OTHER):
        rows = {
            f"{measure} at {group}": [describe(effects.changes[family, group, measure]) for effects in measured]
            for measure in MEASURES
            for group in GROUPS
        }
        print_table(f"Faults of family {family}: ratio after / before; errors: difference of shares", names, rows)


if __name__ == "__main__":
    main()
