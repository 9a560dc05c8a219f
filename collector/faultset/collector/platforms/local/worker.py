"""Execute the kubelet's commands: call the node, probe containers and mount folders."""

from __future__ import annotations

import http.client
import json
import os
import queue
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.launcher import environment, tail
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
from faultset.collector.platforms.local.messages import SpawnContainer
from faultset.collector.platforms.local.node import PROGRAMS
from faultset.collector.platforms.objects import container_statuses, is_ready
from faultset.collector.runtime.environment import MOUNTS
from faultset.collector.spec.containers import DATA_PATH, PAUSE_REPOSITORY, SPEC_PATH
from faultset.core.files import replace_text
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_PROBE_THREADS = 4


class Prober:
    """Probes containers in threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_PROBE_THREADS, thread_name_prefix="prober")
        self._results: queue.SimpleQueue[ProbeResult] = queue.SimpleQueue()

    def submit(self, probe: ProbeContainer) -> None:
        """Start a probe as soon as a thread is free."""
        self._pool.submit(self._probe, probe)

    def results(self) -> Iterator[ProbeResult]:
        """Yield the results since the last call."""
        while not self._results.empty():
            yield self._results.get_nowait()

    def close(self) -> None:
        """Stop probing; results in flight are discarded."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _probe(self, probe: ProbeContainer) -> None:
        failure = probe_container(probe)
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


def probe_container(probe: ProbeContainer) -> str:
    """Probe a container; return the kubelet's failure message, or an empty string if it passes."""
    address = f"{probe.address}:{probe.port}"
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
            f'Get "http://{address}{probe.path}": context deadline exceeded'
            if probe.path
            else _dial_error(address, "i/o timeout")
        )
    except OSError as error:
        reason = f"connect: {(error.strerror or str(error)).lower()}"
        return (
            f'Get "http://{address}{probe.path}": {_dial_error(address, reason)}'
            if probe.path
            else _dial_error(address, reason)
        )
    except http.client.HTTPException as error:
        return f'Get "http://{address}{probe.path}": {error or "EOF"}'
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _dial_error(address: str, reason: str) -> str:
    return f"dial tcp {address}: {reason}"


LogFile = Callable[[str, str], Path]


def describe_unready(store: ObjectStore, log_file: LogFile) -> str:
    """Return a sentence about the pods that are not ready, with their states and last log lines."""
    descriptions = [describe_pod(pod, log_file) for pod in store.each("Pod") if not is_ready(pod)]
    descriptions += [
        f"{kind} {workload['metadata']['name']} has no pod"
        for kind in ("Deployment", "StatefulSet")
        for workload in store.each(kind)
        if workload["spec"]["replicas"] and not workload.get("status", {}).get("replicas")
    ]
    return "; ".join(descriptions) if descriptions else "all pods are ready"


def describe_pod(pod: Object, log_file: LogFile) -> str:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    statuses = container_statuses(pod)
    if not statuses:
        scheduled = [condition for condition in status.get("conditions", []) if condition["type"] == "PodScheduled"]
        reason = scheduled[0].get("message", "") if scheduled else ""
        return f"pod {name} is {status.get('phase', 'Pending')}{': ' + reason if reason else ''}"
    return ", ".join(_describe_container(name, container, log_file) for container in statuses)


def _describe_container(pod: str, status: dict[str, Any], log_file: LogFile) -> str:
    (state, detail), *_ = status["state"].items()
    last = status.get("lastState", {}).get("terminated") or {}
    text = f"pod {pod} is {detail.get('reason', state)} after {status['restartCount']} restarts"
    if last:
        text += f", last exit {last['exitCode']} ({last['reason']})"
    log = log_file(pod, status["name"])
    return f"{text}; last log lines: {tail(log)}"


_SPEC_FOLDER, _, _SPEC_FILE = SPEC_PATH.rpartition("/")
CREDENTIALS_PATH = "/var/run/secrets/faultset"


class Volumes:
    """The folders of an episode's pods.

    Parameters
    ----------
    root
        Parent folder. Folders in `pods` and `volumes/pod` are removed with their pods, others with the episode.
    """

    def __init__(self, root: Path):
        self._root = root

    def working_folder(self, pod: str, container: str) -> Path:
        """Create and return the working folder of a container."""
        folder = self._root / "pods" / pod / container
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def mount(self, pod: str, container: str, mounts: Iterable[Mount]) -> dict[str, str]:
        """Create or update the mounts of a container; return the environment variables with their paths."""
        for mount in mounts:
            target = self._mount_path(pod, container, mount.path)
            if mount.files is not None:
                _write_files(target, mount.files)
            elif not target.exists():
                volume = self._root / "volumes" / str(mount.volume)
                volume.mkdir(parents=True, exist_ok=True)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(volume)
        paths = {mount.path: self._mount_path(pod, container, mount.path) for mount in mounts}
        variables = {MOUNTS: json.dumps({path: str(target) for path, target in paths.items()})}
        if _SPEC_FOLDER in paths:
            variables["FAULTSET_APP"] = str(paths[_SPEC_FOLDER] / _SPEC_FILE)
        if DATA_PATH in paths:
            variables["FAULTSET_DATA"] = str(paths[DATA_PATH])
        if CREDENTIALS_PATH in paths:
            variables["FAULTSET_CREDENTIALS"] = str(paths[CREDENTIALS_PATH])
        return variables

    def forget(self, pod: str, uid: str, *, has_successor: bool = False) -> None:
        """Remove the folders of a deleted pod.

        Parameters
        ----------
        has_successor
            Whether another pod of the same name already uses the folder.
        """
        if not has_successor:
            shutil.rmtree(self._root / "pods" / pod, ignore_errors=True)
        shutil.rmtree(self._root / "volumes" / "pod" / uid, ignore_errors=True)

    def _mount_path(self, pod: str, container: str, path: str) -> Path:
        return self._root / "pods" / pod / container / "mounts" / path.strip("/")


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in set(os.listdir(folder)) - set(files):
        (folder / name).unlink()
    for name, text in files.items():
        replace_text(folder / name, text, durable=False)


class Worker:
    """Executes the kubelet's commands."""

    def __init__(self, node: Channel, root: Path):
        self._node = node
        self.prober = Prober()
        self._root = root
        self._volumes = Volumes(root)
        self._pods: dict[str, str] = {}
        self._start_counts: dict[tuple[str, str], int] = {}
        names = ("LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
        self.environment: dict[str, str] = {name: value for name, value in os.environ.items() if name in names}
        self.environment |= {
            "PATH": build_search_path(root / "bin"),
            "PYTHONPATH": environment()["PYTHONPATH"],
            "PYTHONUNBUFFERED": "1",
            "FAULTSET_HOSTS": str(root / "hosts.json"),
        }

    def perform(self, command: Command) -> Report | None:
        """Execute a command; return its report if it is available immediately."""
        match command:
            case StartContainer():
                return self._start(command)
            case SignalContainer() | LimitContainer():
                self._node.call(command)
            case ProbeContainer():
                self.prober.submit(command)
            case RefreshMounts():
                self._volumes.mount(self._pods[command.uid], command.container, command.mounts)
            case ForgetPod():
                pod = self._pods.pop(command.uid, None)
                if pod is not None:
                    self._volumes.forget(pod, command.uid, has_successor=pod in self._pods.values())
        return None

    def log_file(self, pod: str, container: str) -> Path:
        """Return the log of a container's latest start, which is numbered across all pods of the same name."""
        return self._root / "logs" / pod / container / f"{max(0, self._start_counts.get((pod, container), 0) - 1)}.log"

    def _start(self, command: StartContainer) -> Report:
        self._pods[command.uid] = command.pod
        key = (command.pod, command.container)
        self._start_counts[key] = self._start_counts.get(key, 0) + 1
        folder = self._volumes.working_folder(command.pod, command.container)
        mounts = self._volumes.mount(command.pod, command.container, command.mounts)
        repository, tag = image_repository(command.image)
        argv = PAUSE if repository == PAUSE_REPOSITORY else command.command
        process = self._node.call(
            SpawnContainer(
                uid=command.uid,
                pod=command.pod,
                container=command.container,
                attempt=command.attempt,
                argv=tuple(argv),
                env={**self.environment, **mounts, "FAULTSET_BUILD": tag, **command.env},
                folder=folder,
                log=self.log_file(*key),
                cpu_limit=command.cpu_limit,
                memory_limit=command.memory_limit,
                program_s=command.program_s,
            )
        )
        fields: dict[str, Any] = {"uid": command.uid, "container": command.container, "attempt": command.attempt}
        if process.started_ns is None:
            return StartFailed(**fields, time_ns=time.time_ns(), message=process.error)
        return Started(**fields, time_ns=process.started_ns)


SCRIPTS: dict[str, str] = {**PROGRAMS, "faultset-work": "faultset.collector.runtime.processes:main"}
"""Programs that `exec` can run in a container, in addition to the system's programs."""


PAUSE = ("/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done')


def write_scripts(folder: Path, redis: Mapping[str, str]) -> None:
    """Create the commands of containers in a folder: scripts for our programs and links to Redis.

    Parameters
    ----------
    folder
        Created if missing; comes first in the containers' PATH.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in SCRIPTS.items():
        module, _, attribute = function.partition(":")
        code = f"import sys; from {module} import {attribute}; sys.exit({attribute}())"
        script = folder / name
        command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
        script.write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    for name, path in redis.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def build_search_path(folder: Path) -> str:
    """Return the PATH of containers; `folder` contains our scripts."""
    return os.pathsep.join([str(folder), "/usr/local/bin", "/usr/bin", "/bin"])
