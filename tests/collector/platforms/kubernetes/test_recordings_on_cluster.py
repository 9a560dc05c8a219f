"""A recording on a real cluster: continuous telemetry, a judged incident, and nothing left of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster_campaigns import COLLECT

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.objects import list_namespaces
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LENGTHS = ["--warmup", "8s", "--healthy", "25s", "--faulty", "25s", "--cooldown", "2s", "--chunk", "60s"]


def test_an_incident_is_recorded_judged_and_undone(api: Api, tmp_path: Path) -> None:
    before, out = {item["metadata"]["name"] for item in list_namespaces(api)}, tmp_path / "data"
    options = ["--platform", "kubernetes", "--apps", "hotel", "--faults", "scale-to-zero", "--targets", "rate"]
    options += ["--recording", "4m", "--incidents", "1", "--rate", "8", *LENGTHS, "--out", str(out)]
    run = subprocess.run([*COLLECT, *options], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert not [finding for finding in verify(out) if finding.severity == "error"]
    (recording,) = open_dataset(out).recordings()
    assert recording.duration_s == 240.0
    assert len(recording.view.chunks) == 4
    assert len(recording.view.segments) == 1
    (incident,) = recording.truth.incidents
    assert (incident.fault, incident.verdict) == ("scale-to-zero", "manifest")
    assert incident.healthy_again_ns is not None
    for piece in recording.stream(60, ["metrics", "spans", "logs", "requests"]):
        assert all(len(table) for table in piece.tables.values())
    assert {item["metadata"]["name"] for item in list_namespaces(api)} <= before
