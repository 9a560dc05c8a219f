"""Pods on a node, found in a made-up /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faultset.collector.agent.pods import Pods
from faultset.collector.agent.program import remove_volumes
from faultset.collector.agent.protocol import AgentError

GEO, AGENT, OTHER = (f"{letter * 8}-0000-4000-8000-000000000001" for letter in "abc")
SANDBOX, MAIN = "1" * 64, "2" * 64


class Node:
    """Processes, namespaces and log folders as files."""

    def __init__(self, folder: Path):
        self.proc, self.logs = folder / "proc", folder / "logs"
        self.proc.mkdir()
        self.add(1, "0::/init.scope", network="host", started=0)
        self.add(os.getpid(), f"0::/kubepods/pod{AGENT}/{SANDBOX}", network="agent", started=5)
        for name in (f"hotel-1_geo-1_{GEO}", f"hotel-1-control_faultset-agent-x_{AGENT}", f"shop_web_{OTHER}"):
            (self.logs / name).mkdir(parents=True)

    def add(self, pid: int, cgroup: str, *, network: str, started: int = 10, first: bool = False) -> None:
        namespaces = self.proc / str(pid) / "ns"
        namespaces.mkdir(parents=True)
        original = self.proc.parent / f"network-{network}"
        original.touch()
        name = f"net:[{original.stat().st_ino}]"
        os.link(original, namespaces / name)
        (namespaces / "net").symlink_to(name)
        (self.proc / str(pid) / "cgroup").write_text(cgroup + "\n")
        fields = ["S", *["0"] * 18, str(started), "0"]
        (self.proc / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}")
        (self.proc / str(pid) / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{1 if first else 7}\n")

    def pods(self) -> Pods:
        return Pods("hotel-1", proc=self.proc, logs=self.logs)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.add(100, f"0::/kubepods/pod{GEO}/{SANDBOX}", network="geo", started=10, first=True)
    made.add(101, f"0::/kubepods/pod{GEO}/{MAIN}", network="geo", started=20, first=True)
    made.add(200, f"0::/kubepods/pod{OTHER}/{MAIN}", network="other", started=10, first=True)
    return made


def test_the_network_of_a_pod_is_that_of_its_processes(node: Node, tmp_path: Path) -> None:
    descriptor = node.pods().open_network(GEO)
    assert os.fstat(descriptor).st_ino == (tmp_path / "network-geo").stat().st_ino
    os.close(descriptor)


def test_pods_of_other_namespaces_are_refused(node: Node) -> None:
    for uid in (OTHER, AGENT, "nonsense", ""):
        with pytest.raises(AgentError, match="does not belong to namespace hotel-1"):
            node.pods().open_network(uid)
        with pytest.raises(AgentError, match="does not belong to namespace hotel-1"):
            node.pods().kill(uid, MAIN)


def test_a_pod_on_the_host_s_network_is_refused(node: Node) -> None:
    uid = GEO.replace("a", "d")
    (node.logs / f"hotel-1_proxy_{uid}").mkdir()
    node.add(300, f"0::/kubepods/pod{uid}/{MAIN}", network="host")
    with pytest.raises(AgentError, match="shares its network with process 1 outside"):
        node.pods().open_network(uid)


def test_our_own_processes_in_a_pod_s_network_are_no_strangers(node: Node) -> None:
    node.add(400, f"0::/kubepods/pod{AGENT}/{SANDBOX}", network="geo")
    os.close(node.pods().open_network(GEO))


def test_a_pod_without_a_process_is_refused(node: Node) -> None:
    uid = GEO.replace("a", "e")
    (node.logs / f"hotel-1_rate-1_{uid}").mkdir()
    with pytest.raises(AgentError, match="has no process"):
        node.pods().open_network(uid)


def test_names_are_those_of_our_namespace_only(node: Node) -> None:
    assert node.pods().names() == {GEO: "geo-1"}


def test_the_agent_says_when_it_cannot_tell_pods_apart(node: Node, tmp_path: Path) -> None:
    assert node.pods().unavailable_reason() == ""
    assert "does not write its logs to" in Pods("hotel-1", proc=node.proc, logs=tmp_path / "none").unavailable_reason()


def test_only_the_first_process_of_the_container_is_killed(node: Node) -> None:
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        container = "3" * 64
        node.add(bystander.pid, f"0::/kubepods/pod{GEO}/{container}", network="geo", started=1)
        node.add(victim.pid, f"0::/kubepods/pod{GEO}/{container}", network="geo", started=30, first=True)
        assert node.pods().kill(GEO, f"containerd://{container}") == victim.pid
        assert victim.wait(timeout=10) == -signal.SIGKILL
        assert bystander.poll() is None
    finally:
        for process in (victim, bystander):
            process.kill()
            process.wait()


def test_a_container_of_another_pod_is_not_killed(node: Node) -> None:
    other = "4" * 64
    node.add(500, f"0::/kubepods/pod{OTHER}/{other}", network="other", first=True)
    with pytest.raises(AgentError, match="has no process on this node"):
        node.pods().kill(GEO, other)


def test_volumes_are_removed_below_the_root_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    wanted = str(root / "hotel-1" / "geo-pv")
    Path(wanted).mkdir(parents=True)
    (Path(wanted) / "data").write_text("x")
    remove_volumes([str(root / "hotel-1")], root=root)
    remove_volumes([str(root / "hotel-1")], root=root)
    assert list(root.iterdir()) == []


def test_nothing_is_removed_when_one_path_leads_elsewhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "mine").mkdir(parents=True)
    outside.mkdir()
    (root / "link").symlink_to(outside)
    for path in (outside, root, root / "mine" / ".." / ".." / "outside", root / "link", root / "link" / "x", "mine"):
        with pytest.raises(AgentError, match="volumes must be below"):
            remove_volumes([str(root / "mine"), str(path)], root=root)
    assert (root / "mine").is_dir()
    assert outside.is_dir()
