"""Control group paths as kubelets and runtimes write them."""

from __future__ import annotations

import pytest

from faultset.collector.agent.pods import ProcessOwner, find_owner

UID = "a570e514-5f17-4e87-a049-2fa201289d9e"
UNDERSCORED = UID.replace("-", "_")
CONTAINER = "0af3" * 16
OTHER = "9b1c" * 16
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
    "a cluster in a pod": f"0::/kubepods/pod{OUTER}/{OTHER}/kubelet/kubepods/pod{UID}/{CONTAINER}",
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
    assert find_owner(f"1:cpu:/kubepods/pod{UID}/{CONTAINER}\n2:memory:/kubepods/pod{UID}/{OTHER}") is None


def test_a_name_that_only_resembles_a_pod_is_none() -> None:
    for name in (f"xpod{UID}", f"pod{UID}x", "pod1234", f"pod{UID.upper()}"):
        assert find_owner(f"0::/kubepods/{name}/{CONTAINER}") is None
