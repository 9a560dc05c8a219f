"""The processes and network namespaces of a node's pods, in a folder like /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faultset.collector.agent.networks import AgentError
from faultset.collector.agent.pods import Pods, ProcessOwner, find_owner
from faultset.collector.agent.program import remove_volumes

UID = "a570e514-5f17-4e87-a049-2fa201289d9e"
UNDERSCORED = UID.replace("-", "_")
CONTAINER = "0af3" * 16
OTHER_CONTAINER = "9b1c" * 16
OUTER = "00000000-0000-0000-0000-000000000000"
INSIDE = ProcessOwner(pod_uid=UID, container_id=CONTAINER)

PATHS = {
    "v1 cgroupfs": f"4:memory:/kubepods/burstable/pod{UID}/{CONTAINER}",
    "v1 cgroupfs guaranteed": f"4:memory:/kubepods/pod{UID}/{CONTAINER}",
    "v2 cgroupfs": f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}",
    "v2 systemd containerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/"
        f"cri-containerd-{CONTAINER}.scope"
    ),
    "v2 systemd guaranteed": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope",
    "v1 systemd old containerd": (
        f"1:name=systemd:/kubepods.slice/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{CONTAINER}"
    ),
    "CRI-O": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{CONTAINER}.scope",
    "CRI-O, group of its own": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{CONTAINER}.scope/container",
    "docker": f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{CONTAINER}.scope",
    "kind": (
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope"
    ),
    "seen from a group namespace": (
        f"0::/../../kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{CONTAINER}.scope"
    ),
    "a group below the container": f"0::/kubepods/burstable/pod{UID}/{CONTAINER}/init.scope",
    "a cluster in a pod": f"0::/kubepods/pod{OUTER}/{OTHER_CONTAINER}/kubelet/kubepods/pod{UID}/{CONTAINER}",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_every_driver_and_runtime_names_pod_and_container(path: str) -> None:
    assert find_owner(path + "\n") == INSIDE


def test_all_hierarchies_of_version_1_are_read_together() -> None:
    lines = [f"{n}:{name}:/kubepods/burstable/pod{UID}/{CONTAINER}" for n, name in enumerate(("cpu", "memory"), 1)]
    assert find_owner("\n".join([*lines, "0::/"])) == INSIDE


def test_the_monitor_of_a_container_is_not_in_the_container() -> None:
    monitor = f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-conmon-{CONTAINER}.scope"
    assert find_owner(monitor) == ProcessOwner(pod_uid=UID, container_id=None)


def test_a_process_of_the_host_is_in_no_pod() -> None:
    for path in ("0::/", "0::/system.slice/kubelet.service", "4:memory:/user.slice", "", f"0::/docker/{CONTAINER}"):
        assert find_owner(path) is None


def test_a_process_that_hierarchies_put_into_different_pods_is_in_none() -> None:
    other = f"{UID[:-1]}0"
    assert find_owner(f"1:cpu:/kubepods/pod{UID}/{CONTAINER}\n2:memory:/kubepods/pod{other}/{CONTAINER}") is None
    assert find_owner(f"1:cpu:/kubepods/pod{UID}/{CONTAINER}\n2:memory:/kubepods/pod{UID}/{OTHER_CONTAINER}") is None


def test_a_name_that_only_resembles_a_pod_is_none() -> None:
    for name in (f"xpod{UID}", f"pod{UID}x", "pod1234", f"pod{UID.upper()}"):
        assert find_owner(f"0::/kubepods/{name}/{CONTAINER}") is None


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
