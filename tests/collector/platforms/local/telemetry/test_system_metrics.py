"""The machine's metrics have the names of node_exporter, and roles in the catalogue."""

from __future__ import annotations

from faultset.collector.platforms.local.telemetry.system_metrics import add_system_samples, system_samples
from faultset.collector.sources.metric_store import MetricStore
from faultset.datasets.metrics.roles import builtin_catalogue


def test_cpu_memory_and_load_of_the_machine_are_sampled_and_known_to_the_catalogue() -> None:
    samples = list(system_samples())
    names = {name for name, _, _, _ in samples}
    assert {"node_cpu_seconds_total", "node_memory_MemAvailable_bytes", "node_load1"} <= names
    assert len(samples) == len({(name, *sorted(labels.items())) for name, labels, _, _ in samples})
    for name, _, kind, value in samples:
        row = builtin_catalogue().find(name)
        assert row is not None, name
        assert kind == row.kind
        assert value >= 0


def test_samples_of_the_machine_belong_to_no_service_and_no_pod() -> None:
    store = MetricStore()
    add_system_samples(store, 1000)
    add_system_samples(store, 2000)
    rows = store.window(0, 2**62).table({}).to_pylist()
    assert {(row["service"], row["pod"]) for row in rows} == {(None, None)}
    assert [row["metric"] for row in rows].count("node_load1") == 2
