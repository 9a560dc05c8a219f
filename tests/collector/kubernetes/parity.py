"""What must agree between two episodes of the same plan on two platforms."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd

from faultset.datasets.schemas import TABLES
from faultset.datasets.truth import read_label
from faultset.datasets.views import EpisodeView

FEWEST_SPANS = 15
"""A service with fewer calls on either side of the onset says nothing about rates and latencies."""
SHARE_MOVED = 0.2
LATENCY_MOVED = 3.0
POD_EVENTS = frozenset({"Pulled", "Created", "Started", "Killing", "BackOff", "FailedScheduling"})
"""Without `Scheduled`, which the scheduler sends while the kubelet is still killing the pod before."""
RETIRED_S = 8.0
"""Calls on connections from before the onset go on for a while."""
GRID_NS = 10_000_000_000


class Seen:
    """One episode, cut at its onset."""

    def __init__(self, path: Path):
        self.path = path
        self.view, self.label = EpisodeView(path), read_label(path)
        onset = (
            self.label["inject_start"]
            or self.label["view_start"] + (self.label["view_end"] - self.label["view_start"]) // 2
        )
        self.onset = pd.Timestamp(onset, unit="ns", tz="UTC")
        self.target = self.label["targets"][0] if self.label["targets"] else None

    def verdict(self) -> str:
        """Manifest, latent, silent or none."""
        return self.label["verdict"]

    def event_reasons(self, service: str) -> list[str]:
        """Reasons about a service's pods after the onset, each where it is new, in order of time."""
        events = self.view.events()
        about = events[(events["service"] == service) & (events["time"] >= self.onset) & (events["kind"] == "Pod")]
        return list(dict.fromkeys(r for r in about.sort_values("time")["reason"] if r in POD_EVENTS))

    def pod_states(self, service: str) -> set[tuple[str, str | None, int | None]]:
        """States of a service's containers that last, after the onset: state, reason, exit code."""
        objects = self.view.objects()
        # every ten seconds all states are recorded; what comes between may be passing
        times = objects["time"].to_numpy("datetime64[ns]").astype("int64")
        lasting = (times - self.label["view_start"]) % GRID_NS == 0
        about = (objects["kind"] == "Pod") & (objects["service"] == service)
        rows = objects[lasting & about & (objects["time"] >= self.onset)]
        found: set[tuple[str, str | None, int | None]] = set()
        for text in rows["state"].dropna():
            state = json.loads(text)
            if not state["containers"]:
                found.add((state["phase"], None, None))
            for container in state["containers"]:
                found.add((container["state"], container["reason"], container["exitCode"]))
        passing = ("ContainerCreating", "PodInitializing")
        return {one for one in found if one[1] not in passing and one[0] != "terminated"}

    def moved(self) -> dict[str, str]:
        """Services whose calls fail more, or take several times as long, or have stopped, with the direction."""
        later = self.onset + pd.Timedelta(seconds=RETIRED_S)
        start, end = (pd.Timestamp(self.label[f"view_{name}"], unit="ns", tz="UTC") for name in ("start", "end"))
        spans = self.view.spans()
        spans = spans[spans["operation"].astype(str).str.startswith("/") & (spans["kind"] == "server")]
        result = {}
        for service, rows in spans.groupby("service", observed=True):
            before, after = rows[rows["time"] < self.onset], rows[rows["time"] >= later]
            if len(before) < FEWEST_SPANS:
                continue
            if len(after) / (end - later).total_seconds() < 0.1 * len(before) / (self.onset - start).total_seconds():
                result[str(service)] = "stopped"
                continue
            errors = (after["status"] == "error").mean() - (before["status"] == "error").mean()
            slower = after["duration_ns"].quantile(0.9) / before["duration_ns"].quantile(0.9)
            if errors > SHARE_MOVED:
                result[str(service)] = "errors up"
            elif slower > LATENCY_MOVED:
                result[str(service)] = "latency up"
        return result

    def client_outcome(self) -> str:
        """Whether the client's requests fail or hang after the onset."""
        requests = self.view.requests()
        before, after = requests[requests["scheduled"] < self.onset], requests[requests["scheduled"] >= self.onset]

        def share(rows: pd.DataFrame) -> float:
            return float((rows["outcome"] != "ok").mean()) if len(rows) else 0.0

        return "fails" if share(after) - share(before) > 0.05 else "works"

    def failure_templates(self, service: str) -> set[str]:
        """Templates of what a service logs at the level of errors after the onset, without numbers and names."""
        logs = self.view.logs()
        rows = logs[
            (logs["service"] == service)
            & (logs["time"] >= self.onset)
            & logs["level"].isin(["error", "fatal", "warning"])
        ]
        return {_masked(message) for message in rows["message"]}

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


def by_plan(root: Path) -> dict[str, Seen]:
    """Return the episodes of a dataset by what they do: the fault, or the kind of episode without one."""
    found = [Seen(path) for path in sorted((root / "episodes").iterdir()) if not path.name.endswith(".incomplete")]
    return {seen.label["fault"] or f"noop-{seen.label['no_fault_kind']}": seen for seen in found}
