"""The machine's metrics have the names of node_exporter, and roles in the catalogue."""

from __future__ import annotations

from faultset.collector.platforms.local.telemetry.system_metrics import system_samples
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
