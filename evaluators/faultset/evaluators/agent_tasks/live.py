"""The repair of a live fault as an Inspect task; `faultset mitigate` runs and judges the episode, and undoes the fault.

Each sample starts the command in its own process and offers its tools to the agent over a Unix socket.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from faultset.agents.interface.inspect_tools import inspect_tools
from faultset.agents.interface.servers import OperatorConnection
from faultset.agents.interface.session import INSTRUCTIONS
from faultset.agents.runs.record import CANDIDATES, CLUSTER, QUESTION, AskedQuestion
from faultset.agents.solvers import react
from faultset.core.errors import PlatformError, UsageError
from faultset.core.processes import python_command

_MESSAGE_LIMIT = 200
_POLL_S = 0.5
_ARGUMENTS = "arguments"
"""Key of the command's arguments in the metadata of a sample."""
Names = str | Sequence[str]


@task
def mitigation(
    faults: Names = "",
    apps: Names = "",
    targets: Names = "",
    platform: str = "local",
    within: str = "90s",
    sustain: str = "10s",
    rate: float = 20.0,
    seed: int = 0,
    injector: str | None = None,
    jobs: int = 1,
    message_limit: int = _MESSAGE_LIMIT,
) -> Task:
    """Repair a live fault; one sample per fault and application.

    Parameters
    ----------
    faults, apps, targets, platform, within, sustain, rate, seed, injector
        As in `faultset mitigate`; names are comma-separated.
    jobs
        Maximum number of episodes that run at a time.
    """
    pairs = list(product(_split_names(faults), _split_names(apps)))
    if not pairs:
        raise UsageError(
            "mitigation needs a fault and an application; add for example -T faults=target-port -T apps=hotel"
        )
    options = {"platform": platform, "within": within, "sustain": sustain, "rate": rate, "seed": seed}
    options |= {"injector": injector, "targets": ",".join(_split_names(targets)) or None}
    shared = [f"--{name}={value}" for name, value in options.items() if value is not None]
    samples = [_build_sample(fault, app, shared) for fault, app in pairs]
    episodes = _LiveEpisodes(jobs)
    return Task(
        dataset=MemoryDataset(samples, name="mitigation"),
        setup=live_episode(episodes),
        solver=react(),
        scorer=repaired(episodes),
        cleanup=episodes.end,
        message_limit=message_limit,
    )


def _build_sample(fault: str, app: str, arguments: Sequence[str]) -> Sample:
    """Return the sample of one episode; `arguments` are passed to `faultset mitigate`."""
    return Sample(
        id=f"{fault}@{app}",
        input=INSTRUCTIONS,
        target="repaired",
        metadata={
            QUESTION: AskedQuestion(task="mitigation").model_dump(),
            CLUSTER: f"{app}/{fault}",
            _ARGUMENTS: ["--faults", fault, "--apps", app, *arguments],
        },
    )


@dataclass
class _LiveEpisode:
    folder: tempfile.TemporaryDirectory[str]
    process: subprocess.Popen[bytes]
    connection: OperatorConnection | None = None

    @property
    def output(self) -> Path:
        """Return the file with the JSON result of the attempt."""
        return Path(self.folder.name) / "attempts.json"

    @property
    def messages(self) -> Path:
        """Return the file with the command's messages."""
        return Path(self.folder.name) / "messages.txt"

    def failure(self) -> PlatformError:
        """Return the error of a command that ended without a result."""
        lines = self.messages.read_text("utf-8", "replace").strip().splitlines()
        return PlatformError(f"the live episode failed: {lines[-1] if lines else 'no message'}")


class _LiveEpisodes:
    """The live episodes of a task, by sample id."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._limit: anyio.Semaphore | None = None
        self._running: dict[str, _LiveEpisode] = {}

    async def begin(self, sample: str, arguments: Sequence[str]) -> OperatorConnection:
        """Start an episode, wait until its fault is injected, and return the connection to its tools."""
        # The semaphore belongs to the event loop that runs the samples, so create it here.
        limit = self._limit = self._limit or anyio.Semaphore(self._jobs)
        await limit.acquire()
        folder = tempfile.TemporaryDirectory(prefix="faultset-")
        path = Path(folder.name)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path / "operator"))
            listener.listen(1)
            listener.settimeout(_POLL_S)
            with (path / "attempts.json").open("wb") as output, (path / "messages.txt").open("wb") as messages:
                process = subprocess.Popen(
                    [*_COMMAND, *arguments, "--operator", str(path / "operator"), "--out", str(path / "results")],
                    stdout=output,
                    stderr=messages,
                    start_new_session=True,
                )
            episode = self._running[sample] = _LiveEpisode(folder, process)
            accepted = await anyio.to_thread.run_sync(_accept, listener, process, abandon_on_cancel=True)
        if accepted is None:
            raise episode.failure()
        accepted.settimeout(None)
        connection = await anyio.to_thread.run_sync(OperatorConnection, accepted)
        episode.connection = connection
        return connection

    async def judge(self, sample: str) -> Mapping[str, Any]:
        """Close the connection, wait until the repair is checked and the fault undone, and return the result."""
        episode = self._running[sample]
        if episode.connection is not None:
            episode.connection.close()
        await anyio.to_thread.run_sync(episode.process.wait, abandon_on_cancel=True)
        try:
            (attempt,) = json.loads(episode.output.read_text("utf-8"))
        except ValueError:
            raise episode.failure() from None
        if attempt["result"] is None:
            raise PlatformError(f"the live episode failed: {attempt['failure']}")
        return attempt["result"]

    async def end(self, state: TaskState) -> None:
        """Interrupt an episode that is still running, so that it undoes its fault, and remove its files."""
        episode = self._running.pop(state.uuid, None)
        if episode is None:
            return
        if episode.connection is not None:
            episode.connection.close()
        if episode.process.poll() is None:
            os.kill(episode.process.pid, signal.SIGINT)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(episode.process.wait)
        episode.folder.cleanup()
        if self._limit is not None:
            self._limit.release()


_COMMAND = (
    *python_command("-c", "from faultset.core.start import faultset; faultset()"),
    "mitigate", "--repairs", "none", "--json",
)  # fmt: skip


def _accept(listener: socket.socket, process: subprocess.Popen[bytes]) -> socket.socket | None:
    """Wait for the episode to connect; None if its process ends first."""
    while process.poll() is None:
        try:
            return listener.accept()[0]
        except TimeoutError:
            continue
    return None


@solver
def live_episode(episodes: _LiveEpisodes) -> Solver:
    """Start the live episode of a sample and add its tools."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        connection = await episodes.begin(state.uuid, state.metadata[_ARGUMENTS])
        state.metadata[CANDIDATES] = connection.candidates
        state.tools.extend(inspect_tools(connection))
        return state

    return solve


@scorer(metrics=[mean(), stderr(cluster=CLUSTER)])
def repaired(episodes: _LiveEpisodes) -> Scorer:
    """Score 1 if all checks of `faultset mitigate` confirm the repair, otherwise 0."""

    async def score(state: TaskState, target: Target) -> Score:
        result = await episodes.judge(state.uuid)
        failures = [f"{check['part']}: {check['detail']}" for check in result["parts"] if not check["ok"]]
        times = {name: result[name] for name in ("mitigated_s", "repair_s", "manifest")}
        return Score(
            value=float(result["success"]),
            explanation="; ".join(failures) or "all checks of the repair passed",
            metadata={**times, "parts": result["parts"], "commands": result["commands"]},
        )

    return score


def _split_names(value: Names) -> list[str]:
    names = value.split(",") if isinstance(value, str) else value
    return [name.strip() for name in names if name.strip()]
