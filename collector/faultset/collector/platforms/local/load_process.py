"""The load of one episode: a process beside the pods that sends requests to the application's entry."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.processes import is_stopped, tail
from faultset.collector.load.messages import ChangeLoad, StopLoad
from faultset.collector.load.workloads.traffic import Traffic
from faultset.collector.platforms.local.control_plane.control_plane import ControlPlane
from faultset.collector.platforms.local.node.messages import RunJob, SignalJob
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.files import write
from faultset.core.errors import PlatformError

_NAME = "load"
_FUNCTION = "faultset.collector.load.process:main"
_STOP_TIMEOUT_S = 10.0


class Load:
    """Starts, changes and stops the load; the node forks it.

    Parameters
    ----------
    plane
        The running control plane.
    app
        Whose entry and requests to use.
    folder
        For its results and what it prints.
    """

    def __init__(self, plane: ControlPlane, app: AppSpec, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.results = folder / "requests.bin"
        self._plane, self._app, self._folder = plane, app, folder
        self._log = folder / "load.log"
        self._channel: Channel | None = None
        self._pid = 0
        self._wanted = False

    def start(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic) -> None:
        """Begin to send; raise PlatformError when the load does not come up."""
        if self._channel is not None:
            raise PlatformError("the load runs already; stop it first")
        spec, socket = self._folder / "app.yaml", self._plane.sockets / "load.sock"
        spec.write_text(write(self._app), encoding="utf-8")
        entry = self._plane.cluster.store.get("Service", self._app.entry.service)["spec"]["clusterIP"]
        options = {
            "app": spec,
            "mix": mix,
            "rate": rate_rps,
            "seed": seed,
            "traffic": traffic.to_json(),
            "target": f"http://{entry}:{self._app.entry.port}",
            "results": self.results,
            "socket": socket,
            "bind": self._plane.addresses.load,
        }
        argv = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._plane.jobs.pop(_NAME, None)
        self._wanted = True
        env = self._plane.worker.environment
        job = RunJob(name=_NAME, function=_FUNCTION, argv=tuple(argv), env=env, log=self._log)
        self._pid = self._plane.call("node", job)
        pause = threading.Event()
        while not socket.exists():
            self.check()
            pause.wait(0.02)
        self._channel = Channel(socket)

    def step(self, factor: float) -> None:
        """Change the load; without a load there is nothing to change."""
        if self._channel is not None:
            self.check()
            self._channel.call(ChangeLoad(factor=factor))

    def stop(self) -> None:
        """End the load; may be called twice."""
        channel, self._channel, self._wanted = self._channel, None, False
        if channel is None:
            return
        with contextlib.suppress(PlatformError):
            channel.call(StopLoad())
        channel.close()
        pause = threading.Event()
        for _ in range(int(_STOP_TIMEOUT_S / 0.02)):
            if _NAME in self._plane.jobs:
                return
            self._plane.check()
            pause.wait(0.02)
        self._plane.call("node", SignalJob(name=_NAME, signal="KILL"))

    def close(self) -> None:
        """Let go of the process, which ends with the others."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def check(self) -> None:
        """Raise PlatformError when the load has ended by itself or was stopped; what was stopped is ended first."""
        self._plane.check()
        code = self._plane.jobs.get(_NAME)
        if code is not None and self._wanted:
            raise PlatformError(f"the load ended with code {code}; it said last: {tail(self._log)}")
        if self._wanted and code is None and is_stopped(self._pid):
            self._plane.call("node", SignalJob(name=_NAME, signal="KILL"))
            raise PlatformError("the load was stopped by a signal, which spoils what it measures; let it run")
