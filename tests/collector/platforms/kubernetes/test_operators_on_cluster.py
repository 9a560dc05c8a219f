"""The TiDB cluster of an operator of ours on a real cluster: its faults take effect, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import images
import pytest
from cluster_campaigns import COLLECT, SHORT, await_phase

from faultset.collector.ipc.launcher import tail
from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.objects import list_namespaces
from faultset.collector.runtime.builds import TAGS
from faultset.datasets.format.labels import read_label
from faultset.datasets.views import EpisodeView

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SERVICES = {"tidb", "pd", "tikv", "tikv-engine"}
NAME = "tidbclusters.pingcap.com"
FAULTS = {
    "overload-replicas": "FailedScheduling",
    "nonexistent-storage-class": "ProvisioningFailed",
    "invalid-toleration": "FailedUpdate",
    "invalid-security-context": "FailedUpdate",
    "unknown-update-strategy": "",
    "wrong-operator-image": "Failed",
}
"""What begins the reason of an event that tells of each; empty where none does."""


def _left(api: Api) -> set[str]:
    definitions = {item["metadata"]["name"] for item in api.get(build_path("CustomResourceDefinition", ""))["items"]}
    volumes = {item["metadata"]["name"] for item in api.get(build_path("PersistentVolume", ""))["items"]}
    return {item["metadata"]["name"] for item in list_namespaces(api)} | volumes | (definitions & {NAME})


@pytest.fixture
def nothing_left(api: Api) -> Iterator[None]:
    if images.LOADER in os.environ:
        images.load_images(*TAGS, "pause:3.9")
    before = _left(api)
    assert NAME not in before, "the cluster has a definition of TidbCluster already"
    yield
    deadline = time.monotonic() + 60
    while (left := _left(api) - before) and time.monotonic() < deadline:
        time.sleep(1)
    assert not left


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_operator_takes_effect_and_is_undone(
    fault: str, api: Api, tmp_path: Path, nothing_left: None
) -> None:
    options = ["--faults", fault, "--apps", "tidb", "--normal", "0", "-j", "1", *SHORT, "--out", str(tmp_path / "data")]
    run = subprocess.run([*COLLECT, *options, "--faulty", "40s"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    (path,) = (tmp_path / "data" / "episodes").iterdir()
    label, view = read_label(path), EpisodeView(path)
    assert label.fault == fault
    assert set(view.metrics()["service"].dropna().astype(str)) >= SERVICES
    assert set(view.spans()["service"].dropna().astype(str)) >= SERVICES - {"tikv-engine"}
    assert "TidbCluster" in set(view.objects()["kind"].astype(str))
    told = [reason for reason in view.events()["reason"].astype(str) if reason.startswith(FAULTS[fault])]
    assert told or not FAULTS[fault]


def test_a_killed_campaign_leaves_a_definition_that_recovery_removes(
    api: Api, tmp_path: Path, nothing_left: None
) -> None:
    out, log = tmp_path / "data", tmp_path / "log"
    options = ["--faults", "unknown-update-strategy", "--apps", "tidb", "--normal", "0", *SHORT, "--out", str(out)]
    with log.open("w") as file:
        process = subprocess.Popen([*COLLECT, *options], stderr=file, start_new_session=True)
    await_phase(out, "baseline", process, lambda: tail(log))
    assert NAME in _left(api)
    found = subprocess.run(["pgrep", "--parent", str(process.pid)], capture_output=True, text=True, check=False)
    for pid in (process.pid, *map(int, found.stdout.split())):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    command = "from faultset.core.start import faultset; faultset()"
    recover = ["recover", "--platform", "kubernetes", "--out", str(out)]
    done = subprocess.run([sys.executable, "-c", command, *recover], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
