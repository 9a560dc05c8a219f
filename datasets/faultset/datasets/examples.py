"""Write a small synthetic dataset for tests, documentation and first trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.schemas import TABLES, stored_schema, without_episode
from faultset.datasets.format.versions import create_version

__all__ = ["START_NS", "write_example_dataset"]

SERVICES = ("frontend", "search", "geo", "rate", "profile", "recommendation")
CALLS = (
    ("frontend", "search"),
    ("frontend", "profile"),
    ("frontend", "recommendation"),
    ("search", "geo"),
    ("search", "rate"),
)
FAULTS = ("cpu-hog", "slow-disk")
START_NS = 1_760_000_000_000_000_000


class Scenario:
    """Times, fault and pods of one synthetic episode; those with an odd number have a fault."""

    def __init__(self, number: int, rng: np.random.Generator, baseline_s: int, fault_s: int) -> None:
        self.rng = rng
        self.id = "e" + "".join(f"{value:02x}" for value in rng.integers(0, 256, 5))
        self.fault = FAULTS[(number // 2) % len(FAULTS)] if number % 2 else None
        self.target = SERVICES[1 + (number // 2) % (len(SERVICES) - 1)]
        self.length_s = baseline_s + fault_s
        self.start = START_NS + int(rng.integers(0, 86_400)) * SECOND_NS
        self.end = self.start + self.length_s * SECOND_NS
        self.reference_end = self.start + int(0.8 * baseline_s * SECOND_NS)
        onset = min(baseline_s * rng.uniform(0.8, 1.2), baseline_s + fault_s / 2)
        self.onset = self.start + int(onset * SECOND_NS)
        self.pods = {name: f"{name}-{self._draw_word(9)}-{self._draw_word(5)}" for name in SERVICES}

    @property
    def is_faulty(self) -> bool:
        return self.fault is not None

    def _draw_word(self, letters: int) -> str:
        return "".join(self.rng.choice(list("bcdfghjklmnpqrstvwxz2456789"), letters))

    def strength(self, service: str, times: np.ndarray) -> np.ndarray:
        """Return the strength of the fault at each time: 1 at the target, less at its callers."""
        if self.fault is None:
            return np.zeros(len(times))
        strengths = {self.target: 1.0}
        for _ in SERVICES:
            strengths |= {
                caller: max(strengths.get(caller, 0.0), 0.4 * strengths[callee])
                for caller, callee in CALLS
                if callee in strengths
            }
        return np.where(times >= self.onset, strengths.get(service, 0.0), 0.0)


def telemetry_tables(scenario: Scenario) -> dict[str, pa.Table]:
    make_rows = (_metrics, _spans, _logs, _events, _objects, _requests)
    return {name: _build_table(name, make(scenario)) for name, make in zip(TABLES, make_rows, strict=True)}


@dataclass(frozen=True)
class _Level:
    """Healthy level and noise of a metric."""

    name: str
    kind: str
    healthy: float
    noise: float
    container: bool = True


_LEVELS = (
    _Level("container_cpu_usage_seconds_total", "counter", 0.12, 0.02),
    _Level("container_memory_working_set_bytes", "gauge", 48e6, 4e5),
    _Level("container_threads", "gauge", 9.0, 0.4),
    _Level("container_network_receive_bytes_total", "counter", 5.2e4, 5e3, container=False),
    _Level("container_network_transmit_bytes_total", "counter", 6.1e4, 5e3, container=False),
    _Level("http_server_active_requests", "gauge", 1.0, 0.5),
    _Level("up", "gauge", 1.0, 0.0),
)


def _metrics(scenario: Scenario) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {name: [] for name in TABLES["metrics"].names if name != "episode"}
    for service in SERVICES:
        jitter = scenario.rng.uniform(0.1, 0.2)
        times = scenario.start + ((np.arange(scenario.length_s) + jitter) * SECOND_NS).astype(np.int64)
        effect = scenario.strength(service, times)
        at_target = effect * (service == scenario.target)
        for level in _LEVELS:
            values = level.healthy + level.noise * scenario.rng.standard_normal(scenario.length_s)
            if level.name == "container_cpu_usage_seconds_total":
                values = values + at_target * (0.6 if scenario.fault == "cpu-hog" else 0.1)
            if level.name == "http_server_active_requests":
                values = np.round(np.abs(values + 6 * effect))
            if level.kind == "counter":
                values = 100.0 + np.cumsum(np.maximum(values, 0.0))
            _add_samples(scenario, rows, service, times, level, {}, values)
        count = scenario.rng.poisson(20, scenario.length_s).astype(float)
        mean = 0.012 * np.exp(0.1 * scenario.rng.standard_normal(scenario.length_s)) * (1 + 9 * effect)
        failed = np.where(effect >= 1.0, np.round(0.1 * count), 0.0)
        for status, share in (("200", count - failed), ("500", failed)):
            family = "http_server_request_duration_seconds"
            labels = {"http_request_method": "GET", "http_response_status_code": status}
            for kind, values in (("count", share), ("sum", share * mean)):
                level = _Level(f"{family}_{kind}", kind, 0.0, 0.0)
                _add_samples(scenario, rows, service, times, level, labels, np.cumsum(values))
    return rows


def _add_samples(
    scenario: Scenario,
    rows: dict[str, list[Any]],
    service: str,
    times: np.ndarray,
    level: _Level,
    labels: Mapping[str, str],
    values: np.ndarray,
) -> None:
    number = len(times)
    rows["time"].extend(times.tolist())
    rows["value"].extend(values.tolist())
    for name, value in {
        "service": service,
        "pod": scenario.pods[service],
        "container": service if level.container else None,
        "metric": level.name,
        "labels": canonical_json(labels),
        "kind": level.kind,
    }.items():
        rows[name].extend([value] * number)


def _spans(scenario: Scenario) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for moment in np.sort(scenario.rng.integers(scenario.start, scenario.end - SECOND_NS, 4 * scenario.length_s)):
        _add_span(scenario, rows, int(moment), scenario.rng.bytes(16).hex(), None, None, "frontend")
    return rows


def _add_span(
    scenario: Scenario,
    rows: list[dict[str, Any]],
    time: int,
    trace: str,
    parent: str | None,
    caller: str | None,
    service: str,
) -> int:
    effect = float(scenario.strength(service, np.array([time]))[0]) * (service == scenario.target)
    span = scenario.rng.bytes(8).hex()
    failed = bool(effect >= 1.0 and scenario.rng.random() < 0.1)
    inner = 0
    for source, callee in CALLS:
        if source == service and scenario.rng.random() < 0.7:
            inner += _add_span(scenario, rows, time + inner + 1_000_000, trace, span, service, callee)
    duration = inner + int(scenario.rng.gamma(4.0, 1e6) * (1 + 12 * effect))
    rows.append(
        {
            "time": time,
            "trace_id": trace,
            "span_id": span,
            "parent_span_id": parent,
            "service": service,
            "reported_service": service,
            "pod": scenario.pods[service],
            "operation": f"GET /{service}",
            "kind": "server",
            "duration_ns": duration,
            "status": "error" if failed else "unset",
            "status_code": 500 if failed else 200,
            "attributes": canonical_json({"caller": caller} if caller else {}),
        }
    )
    return duration


def _logs(scenario: Scenario) -> list[dict[str, Any]]:
    rows = []
    for service in SERVICES:
        for moment in np.sort(scenario.rng.integers(scenario.start, scenario.end, 2 * scenario.length_s)):
            is_affected = float(scenario.strength(service, np.array([moment]))[0]) >= 1.0
            is_error = is_affected and scenario.rng.random() < 0.5
            number = int(scenario.rng.integers(1, 400))
            rows.append(
                {
                    "time": int(moment),
                    "service": service,
                    "pod": scenario.pods[service],
                    "container": service,
                    "level": "error" if is_error else "info",
                    "message": f"deadline exceeded after {number + 1000} ms"
                    if is_error
                    else f"served request in {number} us",
                }
            )
    return rows


def _events(scenario: Scenario) -> list[dict[str, Any]]:
    service = str(scenario.rng.choice(SERVICES))
    return [
        {
            "time": int(scenario.rng.integers(scenario.start, scenario.end)),
            "type": "Normal",
            "reason": "ScalingReplicaSet",
            "kind": "Deployment",
            "name": service,
            "service": service,
            "message": f"Scaled up replica set {scenario.pods[service].rpartition('-')[0]} to 1",
            "count": 1,
        }
    ]


def _objects(scenario: Scenario) -> list[dict[str, Any]]:
    state = canonical_json({"replicas": 1, "readyReplicas": 1})
    return [
        {"time": time, "kind": "Deployment", "name": service, "service": service, "state": state}
        for time in range(scenario.start, scenario.end, 10 * SECOND_NS)
        for service in SERVICES
    ]


def _requests(scenario: Scenario) -> dict[str, list[Any]]:
    scheduled = np.sort(scenario.rng.integers(scenario.start, scenario.end - SECOND_NS, 5 * scenario.length_s))
    effect = scenario.strength("frontend", scheduled)
    failed = scenario.rng.random(len(scheduled)) < 0.4 * effect
    latency = scenario.rng.gamma(4.0, 4e6, len(scheduled)) * (1 + 9 * effect)
    return {
        "scheduled": scheduled.tolist(),
        "sent": (scheduled + 50_000).tolist(),
        "endpoint": ["GET /hotels"] * len(scheduled),
        "latency_ns": latency.astype(np.int64).tolist(),
        "status": np.where(failed, 500, 200).tolist(),
        "outcome": np.where(failed, "http_error", "ok").tolist(),
    }


def _build_table(name: str, rows: Mapping[str, list[Any]] | Sequence[Mapping[str, Any]]) -> pa.Table:
    schema = stored_schema(without_episode(TABLES[name]))
    if isinstance(rows, Mapping):
        return pa.Table.from_pydict(rows, schema)
    return pa.Table.from_pylist([dict(row) for row in rows], schema)


def label_of(scenario: Scenario) -> dict[str, Any]:
    label: dict[str, Any] = {
        "no_fault_kind": "plain",
        "targets": [],
        "root_causes": [],
        "parameters": {},
        "view_start": scenario.start,
        "view_end": scenario.end,
        "reference_end": scenario.reference_end,
        "verdict": "none",
        "profile": "custom",
        "workload": {"name": "synthetic", "rate_rps": 5.0},
        "seed": int(scenario.rng.integers(0, 2**31)),
        "host": {"parallel": 1},
        "clock_offsets": {},
    }
    if scenario.fault is None:
        return label
    cause = {"kind": "Deployment", "name": scenario.target, "service": scenario.target, "accepted": [scenario.target]}
    return label | {
        "fault": scenario.fault,
        "no_fault_kind": None,
        "targets": [scenario.target],
        "root_causes": [cause],
        "system_level": "Hardware",
        "fault_type": "Operation Error",
        "category": "symptomatic",
        "parameters": {"share": 0.6} if scenario.fault == "cpu-hog" else {},
        "inject_start": scenario.onset,
        "inject_done": scenario.onset + 20_000_000,
        "effective": scenario.onset + SECOND_NS,
        "recover_start": scenario.end + SECOND_NS,
        "recover_done": scenario.end + 2 * SECOND_NS,
        "healthy_again": scenario.end + 10 * SECOND_NS,
        "verdict": "manifest",
        "first_manifest": scenario.onset + 2 * SECOND_NS,
    }


def evidence_of(scenario: Scenario) -> list[dict[str, Any]]:
    if scenario.fault is None:
        return []
    return [
        {
            "check": "injection",
            "subject": f"Deployment/{scenario.target}",
            "time": scenario.onset + SECOND_NS,
            "passed": True,
            "detail": "synthetic",
        }
    ]


_WITHOUT_INTERVAL = ("spans", "logs", "events", "requests")


def write_example_dataset(
    root: Path | str, *, episodes: int = 4, seed: int = 0, baseline_s: int = 60, fault_s: int = 60
) -> str:
    """Write a synthetic dataset and its version 1.0.0, and return the version.

    Every second episode has a fault: the CPU use and the latency of its target rise, spans become slow and fail, errors
    are logged, and callers are affected. Use the data to try code, not to compare methods; the provenance marks it as
    synthetic.

    Parameters
    ----------
    root
        Dataset folder; created if missing.
    episodes
        Number of episodes; every second one has a fault.
    seed
        Seed of the episodes; the same seed gives the same episodes.
    baseline_s, fault_s
        Lengths of the healthy and of the faulty part of the view in seconds, at least 10 each.
    """
    root = Path(root)
    sequences = np.random.SeedSequence(seed).spawn(episodes)
    for number, sequence in enumerate(sequences):
        _write_episode(Scenario(number, np.random.default_rng(sequence), baseline_s, fault_s), root)
    provenance = {"synthetic": True, "generator": "faultset.datasets.examples", "seed": seed}
    return create_version(root, provenance=provenance)


def _write_episode(scenario: Scenario, root: Path) -> None:
    with EpisodeWriter(root, scenario.id) as writer:
        for table, rows in telemetry_tables(scenario).items():
            writer.write_table(table, [rows])
        writer.write_context(
            EpisodeContext(
                episode=scenario.id,
                app="example",
                platform="synthetic",
                view_start_ns=scenario.start,
                view_end_ns=scenario.end,
                reference_end_ns=scenario.reference_end,
                source_intervals_s={"metrics": 1.0, "objects": 10.0} | dict.fromkeys(_WITHOUT_INTERVAL, None),
                services=SERVICES,
                calls=CALLS,
                workload_entry="frontend",
            )
        )
        writer.write_truth(label_of(scenario), evidence_of(scenario), None)
        writer.commit()
