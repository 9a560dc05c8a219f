"""What must agree between two episodes of the same plan on two platforms."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pandas as pd

from faultset.datasets.format.labels import read_label
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

MIN_SPANS = 15
"""A service with fewer calls on either side of the onset says nothing about rates and latencies."""
SHARE_MOVED = 0.2
STOPPED = 0.25
"""Share of its calls that a service still answers at most when they have stopped."""
LATENCY_MOVED = 3.0
LATENCY_MOVED_NS = 50e6
"""Both must hold: a machine of two cores that runs all of it has latencies of its own."""
POD_EVENTS = frozenset({"Pulled", "Created", "Started", "Killing", "BackOff", "FailedScheduling"})
"""Without `Scheduled`, which the scheduler sends while the kubelet is still killing the pod before."""
RETIRED_S = 8.0
"""Calls on connections from before the onset go on for a while."""
PASSING = frozenset({"ContainerCreating", "PodInitializing", "CrashLoopBackOff"})
"""A back-off is compared by its events: whether a status shows it before the next start is a matter of milliseconds."""
MIN_LINES = 5
LATE_S = 12.0
"""What first happens so shortly before the end of one view may lie behind the end of the other one."""


class HalvedEpisode:
    """One episode, cut at its onset."""

    def __init__(self, path: Path):
        self.path = path
        self.view, self.label = EpisodeView(path), read_label(path)
        onset = (
            self.label.inject_start_ns
            or self.label.view_start_ns + (self.label.view_end_ns - self.label.view_start_ns) // 2
        )
        self.onset = pd.Timestamp(onset, unit="ns", tz="UTC")
        self.target = self.label.targets[0] if self.label.targets else None

    def verdict(self) -> str:
        """Manifest, latent, silent or none."""
        return self.label.verdict

    def event_reasons(self, service: str) -> dict[str, float]:
        """Reasons about a service's pods after the onset, in order, with the seconds from the first to the end."""
        events = self.view.events()
        about = events[(events["service"] == service) & (events["time"] >= self.onset) & (events["kind"] == "Pod")]
        end = pd.Timestamp(self.label.view_end_ns, unit="ns", tz="UTC")
        first = about[about["reason"].isin(POD_EVENTS)].sort_values("time").drop_duplicates("reason")
        left = (end - first["time"]).dt.total_seconds()
        return dict(zip(first["reason"].astype(str), left, strict=True))

    def pod_states(self, service: str) -> set[tuple[str, str | int]]:
        """What states of a service's pods show after the onset: phases, reasons for waiting, codes of new exits.

        A program that starts before its database ends and is restarted; its exit stays in the status.
        """
        objects = self.view.objects()
        objects = objects[(objects["kind"] == "Pod") & (objects["service"] == service)]
        earlier = _states(objects[objects["time"] < self.onset]["state"])
        old = {state for state in earlier if state[0] == "exit"}
        return _states(objects[objects["time"] >= self.onset]["state"]) - old

    def moved(self, clearly: float = 1.0) -> dict[str, set[str]]:
        """Services whose calls fail more, or take several times as long, or have stopped, with what holds of that.

        Below 1, `clearly` lets smaller changes count.
        """
        later = self.onset + pd.Timedelta(seconds=RETIRED_S)
        start, end = (
            pd.Timestamp(at_ns, unit="ns", tz="UTC") for at_ns in (self.label.view_start_ns, self.label.view_end_ns)
        )
        spans = self.view.spans()
        spans = spans[spans["operation"].astype(str).str.startswith("/") & (spans["kind"] == "server")]
        result: dict[str, set[str]] = {}
        for service, rows in spans.groupby("service", observed=True):
            before, after = rows[rows["time"] < self.onset], rows[rows["time"] >= later]
            if len(before) < MIN_SPANS:
                continue
            found: set[str] = set()
            rate_before = len(before) / (self.onset - start).total_seconds()
            if len(after) / (end - later).total_seconds() < STOPPED / clearly * rate_before:
                found.add("stopped")
            if len(after):
                errors = (after["status"] == "error").mean() - (before["status"] == "error").mean()
                slow, slow_before = (part["duration_ns"].quantile(0.9) for part in (after, before))
                if errors > SHARE_MOVED * clearly:
                    found.add("errors up")
                elif slow > max(LATENCY_MOVED * clearly * slow_before, slow_before + LATENCY_MOVED_NS * clearly):
                    found.add("latency up")
            if found:
                result[str(service)] = found
        return result

    def client_failures(self) -> float:
        """Growth of the share of failed requests after the onset."""
        requests = self.view.requests()
        before, after = requests[requests["scheduled"] < self.onset], requests[requests["scheduled"] >= self.onset]

        def share(rows: pd.DataFrame) -> float:
            return float((rows["outcome"] != "ok").mean()) if len(rows) else 0.0

        return share(after) - share(before)

    def failure_templates(self, service: str) -> Counter[str]:
        """Templates of what a service logs at the level of errors after the onset, without numbers and names."""
        logs = self.view.logs()
        about = (logs["service"] == service) & (logs["time"] >= self.onset)
        rows = logs[about & logs["level"].isin(["error", "fatal", "warning"])]
        return Counter(_masked(message) for message in rows["message"])

    def schemas(self) -> dict[str, list[str]]:
        """Columns and types of every table."""
        return {name: [f"{f.name}: {f.type}" for f in self.view.table(name).schema] for name in TABLES}


_MASKS = (
    (re.compile(r"trace_id=\S+|span_id=\S+"), "<id>"),
    (re.compile(r"\d+\.\d+\.\d+\.\d+"), "<address>"),
    (re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b"), "<hex>"),
    (re.compile(r"\b[a-z]+(?:-[a-z0-9]+)*-[0-9a-f]{6,10}-[a-z0-9]{5}\b"), "<pod>"),
    (re.compile(r"\d+"), "<n>"),
)


def _masked(message: str) -> str:
    for pattern, name in _MASKS:
        message = pattern.sub(name, message)
    return " ".join(message.split())[:120]


def _states(texts: pd.Series) -> set[tuple[str, str | int]]:
    found: set[tuple[str, str | int]] = set()
    for text in texts.dropna().astype(str).unique():
        state = json.loads(text)
        if state["reason"] == "Terminating":
            continue
        found.add(("phase", state["phase"]))
        for container in state["containers"]:
            if container["state"] == "waiting":
                found.add(("waits", container["reason"]))
            if container["exitCode"] is not None:
                found.add(("exit", container["exitCode"]))
    return found - {("waits", reason) for reason in PASSING}


def unmatched(here: HalvedEpisode, there: HalvedEpisode) -> dict[str, set[str]]:
    """Return the services whose metrics changed clearly on one side and less than half as much on the other."""
    return {
        service: how
        for one, other in ((here, there), (there, here))
        for service, how in one.moved().items()
        if not how & (other.moved().get(service, set()) | other.moved(0.5).get(service, set()))
    }


def comparable(here: dict[str, float], there: dict[str, float]) -> tuple[list[str], list[str]]:
    """Return the reasons of both in order, without those that only one shows and the other had no time to show."""
    both = here.keys() & there.keys()
    first, second = ([r for r, left in seen.items() if r in both or left > LATE_S] for seen in (here, there))
    return first, second


def by_plan(root: Path) -> dict[str, HalvedEpisode]:
    """Return the episodes of a dataset by fault, or by kind if they have none."""
    found = [
        HalvedEpisode(path) for path in sorted((root / "episodes").iterdir()) if not path.name.endswith(".incomplete")
    ]
    return {seen.label.fault or f"noop-{seen.label.no_fault_kind}": seen for seen in found}


def lacking(here: Counter[str], there: Counter[str]) -> set[str]:
    """Return the templates that occur several times on one side and never on the other."""
    return {name for name, count in (here | there).items() if count >= MIN_LINES and not (here[name] and there[name])}
