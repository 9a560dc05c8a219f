"""How commands of the kubelet become calls to the node."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.processes import environment
from faultset.collector.platforms.local.control_plane.prober import Prober
from faultset.collector.platforms.local.controllers.commands import (
    Command,
    ForgetPod,
    LimitContainer,
    ProbeContainer,
    RefreshMounts,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.platforms.local.controllers.pods import image_repository
from faultset.collector.platforms.local.node.messages import SpawnContainer
from faultset.collector.platforms.local.node.processes import PAUSE, search_path
from faultset.collector.platforms.local.node.volumes import Volumes
from faultset.collector.spec.containers import PAUSE_REPOSITORY


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
