"""Carries out the kubelet's commands: calls to the node, probes, and the folders that containers mount."""

from __future__ import annotations

import http.client
import json
import os
import queue
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.processes import environment, tail
from faultset.collector.platforms.cluster.context import (
    Command,
    ForgetPod,
    LimitContainer,
    Mount,
    ProbeContainer,
    ProbeResult,
    RefreshMounts,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.cluster.pods import image_repository
from faultset.collector.platforms.local.node.messages import SpawnContainer
from faultset.collector.platforms.local.node.processes import PAUSE, search_path
from faultset.collector.platforms.objects import Object, container_statuses, is_ready
from faultset.collector.runtime.environment import VARIABLE as MOUNTS
from faultset.collector.spec.containers import DATA_PATH, PAUSE_REPOSITORY, SPEC_PATH
from faultset.core.files import replace_text

_AT_ONCE = 4


class Prober:
    """Carries out the kubelet's probes; their results are fetched with `results`."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="prober")
        self._results: queue.SimpleQueue[ProbeResult] = queue.SimpleQueue()

    def begin(self, probe: ProbeContainer) -> None:
        """Ask a container as soon as a thread is free."""
        self._pool.submit(self._ask, probe)

    def results(self) -> Iterator[ProbeResult]:
        """Yield the results that have come in since the last call."""
        while not self._results.empty():
            yield self._results.get_nowait()

    def close(self) -> None:
        """Ask no more; answers that are waited for are not."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, probe: ProbeContainer) -> None:
        failure = failure_of(probe)
        self._results.put(
            ProbeResult(
                uid=probe.uid,
                container=probe.container,
                attempt=probe.attempt,
                purpose=probe.purpose,
                time_ns=time.time_ns(),
                failure=failure,
            )
        )


def failure_of(probe: ProbeContainer) -> str:
    """Ask a container; return the kubelet's words for what is wrong, nothing when it is well."""
    where = f"{probe.address}:{probe.port}"
    try:
        if probe.path is None:
            with socket.create_connection((probe.address, probe.port), timeout=probe.timeout_s):
                return ""
        connection = http.client.HTTPConnection(probe.address, probe.port, timeout=probe.timeout_s)
        try:
            connection.request("GET", probe.path, headers={"User-Agent": "kube-probe/1.30", "Connection": "close"})
            status = connection.getresponse().status
        finally:
            connection.close()
    except TimeoutError:
        return (
            f'Get "http://{where}{probe.path}": context deadline exceeded'
            if probe.path
            else _dial(where, "i/o timeout")
        )
    except OSError as error:
        reason = f"connect: {(error.strerror or str(error)).lower()}"
        return f'Get "http://{where}{probe.path}": {_dial(where, reason)}' if probe.path else _dial(where, reason)
    except http.client.HTTPException as error:
        return f'Get "http://{where}{probe.path}": {error or "EOF"}'
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _dial(where: str, reason: str) -> str:
    return f"dial tcp {where}: {reason}"


LogFile = Callable[[str, str], Path]


def unready(store: ObjectStore, log_file: LogFile) -> str:
    """Return one sentence about the pods that are not ready, with their states and last log lines."""
    said = [describe(pod, log_file) for pod in store.each("Pod") if not is_ready(pod)]
    said += [
        f"{kind} {found['metadata']['name']} has no pod"
        for kind in ("Deployment", "StatefulSet")
        for found in store.each(kind)
        if found["spec"]["replicas"] and not found.get("status", {}).get("replicas")
    ]
    return "; ".join(said) if said else "all pods are ready"


def describe(pod: Object, log_file: LogFile) -> str:
    """Return what is known about one pod in a few words."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    statuses = container_statuses(pod)
    if not statuses:
        scheduled = [found for found in status.get("conditions", []) if found["type"] == "PodScheduled"]
        why = scheduled[0].get("message", "") if scheduled else ""
        return f"pod {name} is {status.get('phase', 'Pending')}{': ' + why if why else ''}"
    return ", ".join(_container(name, container, log_file) for container in statuses)


def _container(pod: str, status: dict[str, Any], log_file: LogFile) -> str:
    (state, detail), *_ = status["state"].items()
    last = status.get("lastState", {}).get("terminated") or {}
    words = f"pod {pod} is {detail.get('reason', state)} after {status['restartCount']} restarts"
    if last:
        words += f", last exit {last['exitCode']} ({last['reason']})"
    log = log_file(pod, status["name"])
    return f"{words}; its log ends: {tail(log)}"


_SPEC_FOLDER, _, _SPEC_FILE = SPEC_PATH.rpartition("/")
CREDENTIALS_PATH = "/var/run/secrets/faultset"


class Volumes:
    """All folders of an episode's pods.

    Parameters
    ----------
    root
        Where they are made; `pods` ends with its pods, `volumes` with the episode.
    """

    def __init__(self, root: Path):
        self._root = root

    def working_folder(self, pod: str, container: str) -> Path:
        """Return the folder a container starts in, made if need be."""
        folder = self._root / "pods" / pod / container
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def mount(self, pod: str, container: str, mounts: Iterable[Mount]) -> dict[str, str]:
        """Make or renew what a container mounts; return the variables that tell it where."""
        for mount in mounts:
            place = self._place(pod, container, mount.path)
            if mount.files is not None:
                _write_files(place, mount.files)
            elif not place.exists():
                volume = self._root / "volumes" / str(mount.volume)
                volume.mkdir(parents=True, exist_ok=True)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(volume)
        paths = {mount.path: self._place(pod, container, mount.path) for mount in mounts}
        made = {MOUNTS: json.dumps({path: str(place) for path, place in paths.items()})}
        if _SPEC_FOLDER in paths:
            made["FAULTSET_APP"] = str(paths[_SPEC_FOLDER] / _SPEC_FILE)
        if DATA_PATH in paths:
            made["FAULTSET_DATA"] = str(paths[DATA_PATH])
        if CREDENTIALS_PATH in paths:
            made["FAULTSET_CREDENTIALS"] = str(paths[CREDENTIALS_PATH])
        return made

    def forget(self, pod: str, uid: str, *, has_successor: bool = False) -> None:
        """Remove what belonged to a pod alone.

        Parameters
        ----------
        has_successor
            Whether another pod of that name runs already, and uses its folder.
        """
        if not has_successor:
            shutil.rmtree(self._root / "pods" / pod, ignore_errors=True)
        shutil.rmtree(self._root / "volumes" / "pod" / uid, ignore_errors=True)

    def _place(self, pod: str, container: str, path: str) -> Path:
        return self._root / "pods" / pod / container / "mounts" / path.strip("/")


def _write_files(folder: Path, files: dict[str, str] | object) -> None:
    assert isinstance(files, dict)
    folder.mkdir(parents=True, exist_ok=True)
    for name in set(os.listdir(folder)) - set(files):
        (folder / name).unlink()
    for name, text in files.items():
        replace_text(folder / name, text, durable=False)


class Worker:
    """Carries out commands.

    Parameters
    ----------
    node
        The node process.
    root
        Folder of the episode's scratch files.
    """

    def __init__(self, node: Channel, root: Path):
        self._node = node
        self.prober = Prober()
        self._root = root
        self._volumes = Volumes(root)
        self._pods: dict[str, str] = {}
        self._starts: dict[tuple[str, str], int] = {}
        kept = ("LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
        self.environment: dict[str, str] = {name: value for name, value in os.environ.items() if name in kept}
        self.environment |= {
            "PATH": search_path(root / "bin"),
            "PYTHONPATH": environment()["PYTHONPATH"],
            "PYTHONUNBUFFERED": "1",
            "FAULTSET_HOSTS": str(root / "hosts.json"),
        }

    def perform(self, command: Command) -> Report | None:
        """Carry out one command; return what became of it, if that is known at once."""
        match command:
            case StartContainer():
                return self._start(command)
            case SignalContainer() | LimitContainer():
                self._node.call(command)
            case ProbeContainer():
                self.prober.begin(command)
            case RefreshMounts():
                self._volumes.mount(self._pods[command.uid], command.container, command.mounts)
            case ForgetPod():
                pod = self._pods.pop(command.uid, None)
                if pod is not None:
                    self._volumes.forget(pod, command.uid, has_successor=pod in self._pods.values())
        return None

    def log_file(self, pod: str, container: str) -> Path:
        """Return where the output of a container's last start goes; starts count on in a later pod of that name."""
        return self._root / "logs" / pod / container / f"{max(0, self._starts.get((pod, container), 0) - 1)}.log"

    def _start(self, command: StartContainer) -> Report:
        self._pods[command.uid] = command.pod
        key = (command.pod, command.container)
        self._starts[key] = self._starts.get(key, 0) + 1
        folder = self._volumes.working_folder(command.pod, command.container)
        places = self._volumes.mount(command.pod, command.container, command.mounts)
        repository, tag = image_repository(command.image)
        argv = PAUSE if repository == PAUSE_REPOSITORY else command.command
        process = self._node.call(
            SpawnContainer(
                uid=command.uid,
                pod=command.pod,
                container=command.container,
                attempt=command.attempt,
                argv=tuple(argv),
                env={**self.environment, **places, "FAULTSET_BUILD": tag, **command.env},
                folder=folder,
                log=self.log_file(*key),
                cpu_limit=command.cpu_limit,
                memory_limit=command.memory_limit,
                program_s=command.program_s,
            )
        )
        about: dict[str, Any] = {"uid": command.uid, "container": command.container, "attempt": command.attempt}
        if process.started_ns is None:
            return StartFailed(**about, time_ns=time.time_ns(), message=process.error)
        return Started(**about, time_ns=process.started_ns)
