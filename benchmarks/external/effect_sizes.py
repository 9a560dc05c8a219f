"""Effects of faults, and healthy systems, in several datasets side by side.

    python benchmarks/external/effect_sizes.py DATASET... [--traces FOLDER] [--limit 60] [--write]

A dataset is a folder that was collected or imported; the incidents of a recording are cut into episodes. `--traces`
names the folder of the recording of HotelReservation in https://github.com/alessandrocornacchia/uview, which has
durations of whole traces only, so only its entry is shown. `--write` puts the tables into effect_sizes.md.

Healthy values are those of the reference. Effects compare the time after the onset, at most as long as the reference,
with the reference. They are measured at the target, its callers, the entry, and unrelated services, which neither reach
the target nor are reached by it. Latency is the 90th percentile of server spans, or the metric closest to it; CPU,
memory and log lines are means; errors are the share of failed server spans, or failed per received requests; error
lines are log lines of level warning or above, a second. Recordings keep a sample of the traces and all slow and failed
ones, so spans are weighted by the inverse probability that their trace was kept. A dash means that the dataset has no
such data.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import pandas as pd

from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.dataset import Dataset, Episode
from faultset.datasets.format.context import IMPORTED, Sampling
from faultset.datasets.views import EpisodeView
from faultset.evaluators.leaderboards.texts import TextTable

DOCUMENT = Path(__file__).with_suffix(".md")
FAMILIES = {
    "cpu": r"cpu|hog|-gc$",
    "memory": r"memory|leak|^mem$",
    "delay": r"delay|jitter|^slow-|slow-load",
    "network": r"network|loss|bandwidth|partition|reset|abort",
    "pods": r"kill|^pod|scale|node|missing-image|binary|without-pv|probe|operator-image|replicas",
    "code": r"return|exception|error|build|buggy|bad-replica|-failure$",
}
OTHER = "configuration"
GROUPS = ("target", "callers", "entry", "unrelated")
MEASURES = ("cpu", "memory", "latency", "errors", "logs")
ERROR_LINES = "error lines"
SHOWN = (*MEASURES, ERROR_LINES)
DIFFERENCES = ("errors", ERROR_LINES)
"""Measures whose effect is a difference; those of others are ratios."""
CHOSEN = {
    "cpu": r"container_cpu_usage_seconds_total|^CpuUsage\(m\)|^cpu$",
    "memory": r"container_memory_working_set_bytes|^MemoryUsage\(Mi\)|^mem$",
    "latency": r"^PodServerLatencyP90|^latency-90$|^latency_p90$",
    "failed": r"^error$",
    "received": r"^workload$",
    "available": r"^availability_",
}
"""Metric of each measure: cAdvisor's, Nezha's, RCAEval's and PetShop's."""
ERROR_LEVELS = ("warning", "error", "fatal")
MIN_SPANS = 8
STEP_S = 10

Window = tuple[int, int]
Values = dict[tuple[str, str], float]
"""Values by service and measure."""
Change = tuple[str, str, str]
"""Family of the fault, group of services, and measure."""


def family_of(fault: str) -> str:
    """Return the family of a fault by its name."""
    return next((family for family, pattern in FAMILIES.items() if re.search(pattern, fault)), OTHER)


def service_groups(view: EpisodeView, targets: Iterable[str], serving: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the services of each group, without the targets in the last three.

    Parameters
    ----------
    serving
        Services with server spans; a load generator has none. If there are none at all, the entry is the declared one.
    """
    targets = frozenset(targets)
    callers, callees = {a for a, _ in view.calls}, {b for a, b in view.calls if a in serving}
    related = _reachable(targets, view.calls) | _reachable(targets, [(b, a) for a, b in view.calls])
    groups = {
        "callers": {caller for caller, callee in view.calls if callee in targets},
        "entry": callers & set(serving) - callees if serving else {view.context.workload_entry},
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
    """The tables of one episode, read once.

    Parameters
    ----------
    view
        The episode.
    sampling
        Which traces were kept; all by default.
    """

    def __init__(self, view: EpisodeView, sampling: Sampling | None = None):
        spans = view.table("spans", ["time", "service", "duration_ns", "status", "kind", "trace_id"]).to_pandas()
        spans["time"] = spans["time"].astype("int64")
        spans["failed"] = spans["status"].astype(str) == "error"
        spans["weight"] = weigh_spans(spans, sampling)
        self.spans = spans[spans["kind"] == "server"]
        self.serving = frozenset(self.spans["service"].astype(str))
        logs = view.table("logs", ["time", "service", "level"]).to_pandas()
        self.logs = logs.assign(time=logs["time"].astype("int64"), level=logs["level"].astype(str))
        roles = ["cpu", "memory", "latency"] if self.serving else ["cpu", "memory", "latency", "errors", "traffic"]
        self.wide = view.wide(1.0, roles=roles)

    def values(self, window: Window) -> Values:
        """Return all values in a window."""
        return self._metric_values(window) | self._line_values(window) | self._span_values(window)

    def _metric_values(self, window: Window) -> Values:
        index = self.wide.index.astype("int64")
        levels = self.wide[(index >= window[0]) & (index < window[1])].mean()
        values: Values = {}
        for measure, pattern in CHOSEN.items():
            for (service, metric), level in zip(self.wide.columns, levels, strict=True):
                if re.search(pattern, metric) and np.isfinite(level):
                    values[service, measure] = float(level)
        for service, measure in list(values):
            if measure == "failed" and values.get((service, "received"), 0) > 0:
                values[service, "errors"] = values[service, "failed"] / values[service, "received"]
            elif measure == "available":
                values[service, "errors"] = 1 - values[service, "available"] / 100
        return {key: value for key, value in values.items() if key[1] in MEASURES}

    def _line_values(self, window: Window) -> Values:
        lines = select_window(self.logs, window)
        if lines.empty:
            return {}
        logging = self.logs["service"].astype(str).unique()
        covered_s = measure_covered_s(np.concatenate([lines["time"], select_window(self.spans, window)["time"]]))
        seconds = min((window[1] - window[0]) / SECOND_NS, covered_s)
        all_lines = lines["service"].astype(str).value_counts()
        bad_lines = lines["service"][lines["level"].isin(ERROR_LEVELS)].astype(str).value_counts()
        values: Values = {(str(service), ERROR_LINES): bad_lines.get(service, 0) / seconds for service in logging}
        return values | {(str(service), "logs"): count / seconds for service, count in all_lines.items()}

    def _span_values(self, window: Window) -> Values:
        values: Values = {}
        spans = select_window(self.spans, window)
        for service, rows in spans.groupby(spans["service"].astype(str)):
            if len(rows) >= MIN_SPANS:
                values[str(service), "latency"] = compute_duration_quantile(rows, 0.9) / 1e9
                values[str(service), "errors"] = float(np.average(rows["failed"], weights=rows["weight"]))
        return values


def select_window(rows: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Return the rows of a window."""
    return rows[(rows["time"] >= window[0]) & (rows["time"] < window[1])]


def measure_covered_s(times_ns: npt.NDArray[np.int64]) -> float:
    """Return the seconds that were recorded, in steps of 10 s: some data has only parts of the logs and spans."""
    return float(STEP_S * len(np.unique(times_ns // (STEP_S * SECOND_NS))))


def weigh_spans(spans: pd.DataFrame, sampling: Sampling | None) -> Any:
    """Return how many spans each stands for: slow and failed traces were kept for certain, others by chance."""
    if sampling is None or sampling.traces >= 1:
        return 1.0
    if sampling.slow_traces_s is None:
        return 1 / sampling.traces
    certain = spans["failed"] | (spans["duration_ns"] >= sampling.slow_traces_s * SECOND_NS)
    return np.where(certain.groupby(spans["trace_id"].astype(str)).transform("any"), 1.0, 1 / sampling.traces)


def compute_duration_quantile(spans: pd.DataFrame, share: float) -> float:
    """Return a weighted quantile of the durations in nanoseconds."""
    return float(np.quantile(spans["duration_ns"], share, weights=spans["weight"], method="inverted_cdf"))


def change(measure: str, before: float, after: float) -> float:
    """Return the difference of errors, and the ratio of other values."""
    if measure in DIFFERENCES:
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
        for key in product(services, SHOWN):
            if key in before and key in after:
                effects[group, key[1]].append(change(key[1], before[key], after[key]))
    return effects


class Effects:
    """The measurements on a group of episodes: an application, or all of a dataset."""

    def __init__(self, name: str, *, imported: bool):
        self.name = name
        self.imported = imported
        self.changes: dict[Change, list[float]] = defaultdict(list)
        self.healthy: dict[str, list[float]] = defaultdict(list)

    def add(self, episode: Episode, sampling: Sampling | None = None) -> None:
        """Add one episode."""
        tables = Tables(episode.view, sampling)
        self._add_healthy(episode.view, tables, tables.values(episode.view.reference))
        for (group, measure), effects in measure_effects(episode, tables).items():
            self.changes[family_of(episode.label.fault or ""), group, measure] += effects

    def _add_healthy(self, view: EpisodeView, tables: Tables, before: Values) -> None:
        start_ns, end_ns = view.reference
        entries = service_groups(view, (), tables.serving)["entry"]
        at_entry = tables.spans[tables.spans["service"].astype(str).isin(entries) & (tables.spans["time"] < end_ns)]
        if len(at_entry) >= MIN_SPANS:
            for share in (0.5, 0.9):
                self.healthy[f"entry p{share:.0%}"[:-1]].append(compute_duration_quantile(at_entry, share) / 1e6)
        else:
            self.healthy["entry p90"] += [1e3 * before[key] for key in product(entries, ["latency"]) if key in before]
        for measure in ("cpu", "memory", "latency"):
            values = [value for (_, name), value in before.items() if name == measure and value > 0]
            if len(values) > 2:
                self.healthy[f"{measure} spread"].append(max(values) / min(values))
        middle_ns = (start_ns + end_ns) // 2
        first, second = tables.values((start_ns, middle_ns)), tables.values((middle_ns, end_ns))
        ratios = [second[key] / first[key] for key in first if key[1] == "latency" and second.get(key) and first[key]]
        if ratios:
            self.healthy["noise"].append(float(np.mean(np.abs(np.log(ratios)) > np.log(1.5))))
        self.healthy["errors"] += [before[key] for key in product(entries, ["errors"]) if key in before]
        for measure in ("logs", ERROR_LINES):
            values = [value for (_, name), value in before.items() if name == measure]
            if values:
                self.healthy[measure].append(sum(values))

    def drop_unknown_errors(self) -> None:
        """Remove the shares of failed spans if no span ever failed, because spans then have no status."""
        keys = [key for key in self.changes if key[2] == "errors"]
        if not any(self.healthy["errors"]) and not any(any(self.changes[key]) for key in keys):
            self.healthy.pop("errors")
            for key in keys:
                del self.changes[key]


def pool(name: str, parts: Collection[Effects], *, imported: bool) -> Effects:
    """Return the measurements of several groups as one."""
    whole = Effects(name, imported=imported)
    for part in parts:
        for key, changes in part.changes.items():
            whole.changes[key] += changes
        for text, values in part.healthy.items():
            whole.healthy[text] += values
    return whole


HEALTHY = {
    "entry p50": "entry, median latency (ms)",
    "entry p90": "entry, 90th percentile (ms)",
    "cpu spread": "largest / smallest CPU of a service",
    "memory spread": "largest / smallest memory",
    "latency spread": "largest / smallest 90th percentile",
    "noise": "share of services whose 90th percentile differs by more than 1.5 between halves",
    "errors": "entry, share of failed spans or requests",
    "logs": "log lines per second",
    ERROR_LINES: "error lines per second",
}
WITHIN = "within the other data"
FEW = 3
"""Fewest values with quartiles and extremes."""


def _finite(values: Iterable[float]) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = np.array(list(values), dtype="float64")
    return numbers[np.isfinite(numbers)]


def describe(values: Iterable[float]) -> str:
    """Return median, quartiles and number; only the values if there are one or two."""
    finite = _finite(values)
    if len(finite) < FEW:
        return ", ".join(f"{value:.3g}" for value in finite) or "-"
    low, median, high = (f"{value:.3g}" for value in np.quantile(finite, [0.25, 0.5, 0.75]))
    return f"{median} [{low}, {high}] n={len(finite)}"


def compare(ours: Iterable[float], others: Iterable[float]) -> str:
    """Return the share of our values between the extremes of others; bold if our median lies outside.

    Up to 10 % or 0.01 beyond an extreme is allowed. A dash means that others have fewer than three values.
    """
    first, second = _finite(ours), _finite(others)
    if not len(first) or len(second) < FEW:
        return "-"
    low, high = (bound + sign * max(0.1 * abs(bound), 0.01) for bound, sign in ((second.min(), -1), (second.max(), 1)))
    share = f"{np.mean((first >= low) & (first <= high)):.0%}"
    return share if low <= np.median(first) <= high else f"**{share}**"


def build_row(columns: Collection[Effects], whole: Collection[Effects], key: str | Change) -> list[str]:
    """Return the cells of a row: the values of each column, and how many of ours lie within those of others.

    Parameters
    ----------
    columns
        Groups of episodes to show.
    whole
        Groups of episodes to compare, each episode in one.
    key
        Key of the healthy values or of the changes.
    """

    def values_of(effects: Effects) -> list[float]:
        return effects.healthy.get(key, []) if isinstance(key, str) else effects.changes.get(key, [])

    ours = [value for effects in whole if not effects.imported for value in values_of(effects)]
    others = [value for effects in whole if effects.imported for value in values_of(effects)]
    shown = [describe(values_of(effects)) for effects in columns]
    return [*shown, compare(ours, others)]


def format_table(title: str, columns: list[str], rows: Mapping[str, list[str]]) -> list[str]:
    """Return a table in Markdown, without rows that have no values; empty without rows."""
    known = [[name, *cells] for name, cells in rows.items() if set(cells) != {"-"}]
    return ["", f"**{title}**", "", *TextTable.of(["", *columns], known).markdown()] if known else []


def choose_episodes(dataset: Dataset, limit: int) -> Iterable[tuple[Episode, Sampling | None]]:
    """Yield at most `limit` evenly spaced episodes, and all incidents of recordings as episodes with the sampling."""
    names = sorted(dataset.episodes)
    for position in np.unique(np.linspace(0, len(names) - 1, min(limit, len(names))).astype(int)):
        yield dataset[names[position]], None
    for recording in dataset.recordings():
        for episode in recording.episodes(before_s=120, after_s=60, healthy=0):
            yield episode, recording.view.context.sampling


def measure_dataset(path: Path, limit: int) -> list[Effects]:
    """Measure a dataset; return all of it, then each application if there are several."""
    dataset = open_dataset(path)
    by_app: dict[str, Effects] = {}
    for episode, sampling in choose_episodes(dataset, limit):
        context = episode.view.context
        by_app.setdefault(context.app, Effects(context.app, imported=context.platform == IMPORTED)).add(
            episode, sampling
        )
    for effects in by_app.values():
        effects.drop_unknown_errors()
    parts = list(by_app.values())
    whole = pool(dataset.root.name, parts, imported=all(effects.imported for effects in parts))
    return [whole, *parts] if len(parts) > 1 else [whole]


def trace_effects(folder: Path) -> Effects:
    """Read the durations of whole traces, and their change after injections into any service."""
    effects = Effects("uview", imported=True)
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


def format_tables(measured: list[list[Effects]]) -> str:
    """Return all tables in Markdown; the first group of each dataset is the whole dataset."""
    columns, whole = [effects for each in measured for effects in each], [each[0] for each in measured]
    names = [*(effects.name for effects in columns), WITHIN]
    rows = {text: build_row(columns, whole, key) for key, text in HEALTHY.items()}
    lines = format_table("Healthy: median [quartiles] over episodes", names, rows)
    for family in (*FAMILIES, OTHER):
        rows = {
            f"{measure} at {group}": build_row(columns, whole, (family, group, measure))
            for measure in SHOWN
            for group in GROUPS
        }
        title = f"Faults of family {family}: ratio after / before; differences of errors and error lines"
        lines += format_table(title, names, rows)
    return "\n".join(lines).strip()


@click.command()
@click.argument("datasets", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--traces", type=click.Path(exists=True, path_type=Path), help="Folder of uview's recording.")
@click.option("--limit", default=60, show_default=True, help="Maximum number of episodes of a dataset.")
@click.option("--write", is_flag=True, help="Put the tables into effect_sizes.md.")
def main(datasets: tuple[Path, ...], traces: Path | None, limit: int, write: bool) -> None:
    """Print healthy values and effects of all datasets side by side."""
    measured = [measure_dataset(path, limit) for path in datasets]
    if traces is not None:
        measured.append([trace_effects(traces)])
    tables = format_tables(measured)
    click.echo(tables)
    if write:
        DOCUMENT.write_text(f"{tables}\n", "utf-8")


if __name__ == "__main__":
    main()
