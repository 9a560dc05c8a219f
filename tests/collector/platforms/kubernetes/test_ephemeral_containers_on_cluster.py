"""Impairments by an ephemeral container, and where Pod Security lets it in."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from datagrams import ECHO, answered, is_gone, until

from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.kubernetes.client import Api, build_path, run_in_pod
from faultset.collector.platforms.kubernetes.impairer import EPHEMERAL, EphemeralImpairer
from faultset.collector.platforms.kubernetes.settings import app_image
from faultset.core.errors import PlatformError

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = app_image("1.0.0")
SENT = 100
RENEWING = """
import sys, time
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.impairer import EphemeralImpairer
from faultset.collector.platforms.impairments import Partition
api, (namespace, image) = Api(), sys.argv[1:]
impairer = EphemeralImpairer(api, namespace, image)
impairer.start()
impairer.impair(api.get(f"/api/v1/namespaces/{namespace}/pods/sender"), Partition())
print("impaired", flush=True)
time.sleep(600)
"""


class Namespace:
    """A namespace with a sender and a receiver."""

    def __init__(self, api: Api, level: str):
        self.api, self.name = api, f"k2-{level}-{secrets.token_hex(3)}"
        labels = {"pod-security.kubernetes.io/enforce": level}
        api.post(build_path("Namespace", ""), {"metadata": {"name": self.name, "labels": labels}})

    def start(self, name: str) -> None:
        container = {
            "name": "main",
            "image": IMAGE,
            "command": ["python3", "-c", ECHO],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
        }
        security = {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "securityContext": security}
        self.api.post(build_path("Pod", self.name), {"metadata": {"name": name}, "spec": spec})
        until(lambda: self.pod(name)["status"].get("phase") == "Running", 60)

    def pod(self, name: str = "sender") -> dict[str, Any]:
        return self.api.get(build_path("Pod", self.name, name))

    def answers(self) -> int:
        return answered(self.api, self.name, SENT)

    def rules(self) -> str:
        return run_in_pod(self.api, self.name, "sender", EPHEMERAL, ["iptables", "-S"])

    def remove(self) -> None:
        self.api.call("DELETE", build_path("Namespace", "", self.name))


@pytest.fixture(scope="module")
def namespace(api: Api) -> Iterator[Namespace]:
    made = Namespace(api, "privileged")
    try:
        for name in ("receiver", "sender"):
            made.start(name)
        yield made
    finally:
        made.remove()


@pytest.fixture
def impairer(namespace: Namespace) -> Iterator[EphemeralImpairer]:
    made = EphemeralImpairer(namespace.api, namespace.name, IMAGE)
    made.prepare([namespace.pod(), namespace.pod("receiver")])
    made.start()
    yield made
    made.close()
    made.lift("sender")


def test_every_pod_gets_the_container_and_stays_as_it_was(namespace: Namespace, impairer: EphemeralImpairer) -> None:
    impairer.prepare([namespace.pod()])
    for name in ("sender", "receiver"):
        pod = namespace.pod(name)
        assert [one["name"] for one in pod["spec"]["ephemeralContainers"]] == [EPHEMERAL]
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_partition_and_a_loss_show_in_traffic_and_are_counted(
    namespace: Namespace, impairer: EphemeralImpairer
) -> None:
    assert namespace.answers() == SENT
    impairer.impair(namespace.pod(), Partition())
    assert namespace.answers() == 0
    assert impairer.impaired_packets(namespace.pod()) >= SENT
    impairer.impair(namespace.pod(), Loss(probability=0.5))
    assert 0 < namespace.answers() < SENT
    impairer.lift("sender")
    assert namespace.answers() == SENT
    assert impairer.impaired_packets(namespace.pod()) == 0
    assert "FAULTSET" not in namespace.rules()


def test_rules_end_by_themselves_after_the_collector_was_killed(
    namespace: Namespace, impairer: EphemeralImpairer
) -> None:
    command = [sys.executable, "-c", RENEWING, namespace.name, IMAGE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout is not None
        assert collector.stdout.readline() == "impaired\n"
        time.sleep(35)
        assert namespace.answers() == 0, "renewed leases go on"
        os.kill(collector.pid, signal.SIGKILL)
    until(lambda: namespace.answers() > 0, 60)
    assert namespace.answers() == SENT
    assert "FAULTSET" not in namespace.rules()


def test_what_cannot_be_done_from_inside_is_refused_with_the_reason(
    namespace: Namespace, impairer: EphemeralImpairer
) -> None:
    missing = impairer.missing_capabilities()
    assert "loss" not in missing
    assert "partition" not in missing
    assert "only the node agent can kill" in missing["kill"]
    with pytest.raises(PlatformError, match="without the node agent"):
        impairer.kill(namespace.pod(), "main")
    if "delay" in missing:
        assert "netem" in missing["delay"]
        with pytest.raises(PlatformError, match="delay is not supported here: the kernel does not support netem"):
            impairer.impair(namespace.pod(), Delay(latency_s=0.2))
        assert namespace.answers() == SENT


def test_a_pod_that_is_gone_has_nothing_to_lift(namespace: Namespace, impairer: EphemeralImpairer) -> None:
    impairer.impair(namespace.pod(), Partition())
    path = build_path("Pod", namespace.name, "sender")
    namespace.api.call("DELETE", path, query={"gracePeriodSeconds": 0})
    until(lambda: is_gone(namespace.api, path), 30)
    impairer.renew()
    impairer.lift("sender")
    namespace.start("sender")
    assert namespace.answers() == SENT


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pod_security_below_privileged_forbids_the_container(api: Api, level: str) -> None:
    made = Namespace(api, level)
    try:
        made.start("sender")
        with pytest.raises(PlatformError, match=rf'violates PodSecurity "{level}.*NET_ADMIN'):
            EphemeralImpairer(api, made.name, IMAGE).prepare([made.pod()])
    finally:
        made.remove()
