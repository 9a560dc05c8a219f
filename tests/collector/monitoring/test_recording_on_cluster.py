"""A minute of a real cluster's Prometheus and Jaeger becomes a valid episode."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faultset.collector.monitoring.servers import Selection, Servers, fetch_answers
from faultset.collector.platforms.kubernetes.client import Api
from faultset.datasets import open_dataset, verify
from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry
from tests.collector.platforms.kubernetes.conftest import api as api

pytestmark = pytest.mark.cluster


def test_a_minute_of_a_namespace_is_recorded(api: Api, tmp_path: Path) -> None:
    end_ns = time.time_ns() - 60 * 10**9
    window = end_ns - 60 * 10**9, end_ns
    servers = Servers(prometheus="observe/prometheus-server:80", jaeger="observe/jaeger:16686", uses_cluster=True)
    selection = Selection(start_ns=window[0], end_ns=window[1], namespace="observe")
    folders = fetch_answers(servers, selection, tmp_path / "answers", requests_per_s=20)
    import_telemetry(folders, tmp_path / "out", TelemetryOptions(window=window), workers=1)
    assert not [finding for finding in verify(tmp_path / "out") if finding.severity == "error"]
    dataset = open_dataset(tmp_path / "out")
    metrics = dataset[dataset.episodes[0]].view.metrics()
    cpu = metrics[metrics["metric"] == "container_cpu_usage_seconds_total"]
    assert {"prometheus", "jaeger"} <= set(cpu["service"]), "services are named by the label app"
    assert cpu.groupby("pod", observed=True)["time"].nunique().min() > 3
