"""What can be asked of the node, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultset.collector.ipc.channel import Message, Request
from faultset.collector.platforms.cluster.context import ContainerExited


@dataclass(frozen=True, kw_only=True)
class ContainerProcess(Message):
    """The first process of a container that has been started, or why it could not be."""

    pid: int | None = None
    started_ns: int | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class SpawnContainer(Request[ContainerProcess]):
    """Fork a container.

    Attributes
    ----------
    argv
        A program's name and its arguments.
    folder
        Where it starts.
    log
        Where what it prints goes.
    cpu_limit, memory_limit
        Cores and bytes; None for no limit.
    program_s
        How long the container waits before its program begins.
    """

    uid: str
    pod: str
    container: str
    attempt: int
    argv: tuple[str, ...]
    env: dict[str, str]
    folder: Path
    log: Path
    cpu_limit: float | None = None
    memory_limit: int | None = None
    program_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class JobExited(Message):
    """A process that belongs to no pod has ended."""

    job: str
    exit_code: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class PollExits(Request[tuple[ContainerExited | JobExited, ...]]):
    """Wait for ends of containers and jobs, at most `timeout_s`; answered at once when there are some already."""

    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class ExecutionResult(Message):
    """Exit code and output of a command that has ended."""

    code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class Execute(Request[ExecutionResult]):
    """Run a command in a container; it is ended after `timeout_s`."""

    uid: str
    container: str
    argv: tuple[str, ...]
    timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class ContainerSample(Message):
    """One sample of a container under cAdvisor's name; `kind` is counter or gauge."""

    pod: str
    container: str
    metric: str
    labels: dict[str, str]
    kind: str
    value: float


@dataclass(frozen=True, kw_only=True)
class ReadSamples(Request[tuple[ContainerSample, ...]]):
    """Take a sample of every series of every running container."""


@dataclass(frozen=True, kw_only=True)
class RunJob(Request[int]):
    """Fork a process that belongs to no pod, such as the load; answered by its process id.

    Attributes
    ----------
    name
        Under which its end is reported.
    function
        `module:function`, called with `argv`.
    """

    name: str
    function: str
    argv: tuple[str, ...]
    env: dict[str, str]
    log: Path


@dataclass(frozen=True, kw_only=True)
class SignalJob(Request[bool]):
    """Send a signal to a process that belongs to no pod; the answer says whether it runs."""

    name: str
    signal: str


@dataclass(frozen=True, kw_only=True)
class ShutDown(Request[bool]):
    """End the node and all its processes."""
