"""The same plans on the embedded platform and on a cluster: what must agree does, and what differs is listed.

FAULTSET_PARITY_LOCAL and FAULTSET_PARITY_CLUSTER name datasets that were collected before, with the plans below.
FAULTSET_PARITY is "all" for all faults, or the names of some; FAULTSET_PARITY_APP is the application. After
FAULTSET_PARITY_LIMIT_S seconds a campaign is interrupted, and the tests are skipped: on a busy machine episodes are
repeated again and again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import images
import pytest
from parity import HalvedEpisode, by_plan, comparable, lacking, unmatched

from faultset.collector.runtime.builds import TAGS
from faultset.datasets.checks import Finding
from faultset.datasets.checks.verification import verify

FEW = ("target-port", "scale-to-zero")
"""Run by default, with an episode without a fault; with FAULTSET_PARITY=all, all are."""
MANY = (
    "auth-missing",
    "buggy-image",
    "container-kill",
    "memory-leak",
    "network-loss",
    "network-partition",
    "nonexistent-node",
    "pod-failure",
    "pod-kill",
    "redeploy-without-pv",
    "revoke-auth",
    "user-unregistered",
    "wrong-binary",
)
APP = os.environ.get("FAULTSET_PARITY_APP", "hotel")
CHOSEN = os.environ.get("FAULTSET_PARITY", ",".join(FEW))
PLANS = (*FEW, *MANY) if CHOSEN == "all" else tuple(CHOSEN.split(","))
FAULT = "30s" if {*PLANS} <= {*FEW} else "50s"
"""A leak needs longer than most."""
LIMIT_S = float(os.environ.get("FAULTSET_PARITY_LIMIT_S", "inf"))
LENGTHS = ["--warmup", "8s", "--healthy", "30s", "--faulty", FAULT, "--cooldown", "3s"]

CLIENTS_DIFFER = {"network-loss": 0.4}
OTHERWISE = 0.25
"""By how much the shares of failed requests may differ: lost packets cost a new connection more than a relayed one."""

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
"""The campaigns on both platforms take minutes of a quiet machine."""


def _collect(platform: str, root: Path, jobs: int) -> Path:
    command = "from faultset.collector.cli.collect import collect; collect()"
    options = ["--faults", ",".join(PLANS), "--apps", APP, "--normal", "1", "--seed", "11", *LENGTHS]
    options += ["--platform", platform, "-j", str(jobs), "--out", str(root)]
    said, end_s = "", time.monotonic() + LIMIT_S
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", command, *options], stderr=subprocess.PIPE, text=True) as run:
            assert run.stderr is not None
            alarm = threading.Timer(min(end_s - time.monotonic(), threading.TIMEOUT_MAX), _interrupt, [run])
            alarm.start()
            said = run.stderr.read()[-3000:]
            alarm.cancel()
        if run.returncode == 0:
            return root
        if time.monotonic() >= end_s:
            pytest.skip(f"this machine is too busy: the episodes were not there after {LIMIT_S:g} s")
    busy = next((line for line in said.splitlines() if "host may be" in line or "host was too busy" in line), None)
    if busy:
        pytest.skip(f"this machine is too busy for episodes: {busy.strip()}")
    raise AssertionError(said)


def _interrupt(campaign: subprocess.Popen[str]) -> None:
    campaign.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def on_cluster(api: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FAULTSET_PARITY_CLUSTER")
    if given:
        return Path(given)
    if images.LOADER in os.environ:
        images.load_images(*TAGS, "pause:3.9")
    return _collect("kubernetes", tmp_path_factory.mktemp("cluster") / "data", 1)


@pytest.fixture(scope="module")
def on_this_machine(api: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FAULTSET_PARITY_LOCAL")
    return Path(given) if given else _collect("local", tmp_path_factory.mktemp("local") / "data", 3)


@pytest.fixture(scope="module")
def pairs(on_this_machine: Path, on_cluster: Path) -> Mapping[str, tuple[HalvedEpisode, HalvedEpisode]]:
    here, there = by_plan(on_this_machine), by_plan(on_cluster)
    return {name: (here[name], there[name]) for name in here if name in there}


@pytest.mark.parametrize("name", [*PLANS, "noop-plain"])
def test_both_platforms_show_the_same(name: str, pairs: Mapping[str, tuple[HalvedEpisode, HalvedEpisode]]) -> None:
    here, there = pairs[name]
    assert here.label.targets == there.label.targets
    assert here.verdict() == there.verdict()
    assert abs(here.client_failures() - there.client_failures()) < CLIENTS_DIFFER.get(name, OTHERWISE)
    assert here.schemas() == there.schemas()
    if here.target is None:
        assert here.moved() == there.moved() == {}
        return
    concerned = (here.target, *(_consumers(here) if here.label.fault in _BY_CONSUMERS else ()))
    for service in concerned:
        reasons, reasons_there = comparable(here.event_reasons(service), there.event_reasons(service))
        assert reasons == reasons_there, service
        assert here.pod_states(service) == there.pod_states(service), service
        assert not lacking(here.failure_templates(service), there.failure_templates(service)), service
    assert unmatched(here, there) == {}


_BY_CONSUMERS = frozenset({"auth-missing", "revoke-auth", "user-unregistered", "redeploy-without-pv"})


def _consumers(seen: HalvedEpisode) -> list[str]:
    return [caller for caller, callee in seen.view.calls if callee == seen.target]


def test_a_dataset_from_a_cluster_leaks_nothing(on_cluster: Path) -> None:
    found: list[Finding] = verify(on_cluster)
    assert [finding for finding in found if finding.severity == "error"] == []
