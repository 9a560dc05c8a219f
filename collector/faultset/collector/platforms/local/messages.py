"""Messages of the node and the relay of the embedded platform."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultset.collector.ipc.channel import Message, Request
from faultset.collector.platforms.cluster.context import ContainerExited
from faultset.collector.platforms.impairments import Abort, Bandwidth, Delay, Hold, Loss, Partition, Reset


@dataclass(frozen=True, kw_only=True)
class ContainerProcess(Message):
    """The main process of a started container, or the reason why it did not start."""

    pid: int | None = None
    started_ns: int | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class SpawnContainer(Request[ContainerProcess]):
    """Start a container.

    Attributes
    ----------
    argv
        The program and its arguments.
    folder
        Working folder.
    log
        File for its output.
    cpu_limit, memory_limit
        Cores and bytes; None for no limit.
    program_s
        Delay before the program starts.
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
    """A process outside pods has ended."""

    job: str
    exit_code: int
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class PollExits(Request[tuple[ContainerExited | JobExited, ...]]):
    """Return the containers and jobs that have ended; wait up to `timeout_s` if there are none."""

    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class ExecutionResult(Message):
    """The exit code and output of a command."""

    code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class Execute(Request[ExecutionResult]):
    """Run a command in a container; kill it after `timeout_s`."""

    uid: str
    container: str
    argv: tuple[str, ...]
    timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True)
class ContainerSample(Message):
    """A sample of a container with cAdvisor's metric name and time; `kind` is counter or gauge."""

    time_ns: int
    pod: str
    container: str
    metric: str
    labels: dict[str, str]
    kind: str
    value: float


@dataclass(frozen=True, kw_only=True)
class ReadSamples(Request[tuple[ContainerSample, ...]]):
    """Return the latest samples of all running containers, which the node reads at irregular times.

    Attributes
    ----------
    interval_s
        Time between two requests; containers are read at least that often.
    """

    interval_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RunJob(Request[int]):
    """Start a process outside pods, such as the load generator; return its process id.

    Attributes
    ----------
    name
        Name that `JobExited` reports.
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
    """Send a signal to a process outside pods; return whether the process is running."""

    name: str
    signal: str


@dataclass(frozen=True, kw_only=True)
class ShutDown(Request[bool]):
    """Stop the node and all its processes."""


@dataclass(frozen=True, kw_only=True)
class RelayTarget(Message):
    """The target of a route: a port of a pod, or of a process outside pods (`pod` is None)."""

    pod: str | None
    ip: str
    port: int


@dataclass(frozen=True, kw_only=True)
class RelayRoute(Message):
    """An address to listen on and its targets."""

    name: str
    ip: str
    port: int
    targets: tuple[RelayTarget, ...]


@dataclass(frozen=True, kw_only=True)
class PodImpairment(Message):
    """An impairment of a pod."""

    pod: str
    impairment: Loss | Delay | Partition | Bandwidth | Abort | Reset | Hold


@dataclass(frozen=True, kw_only=True)
class RelayState(Message):
    """The state of the relay.

    Attributes
    ----------
    listening
        Names of routes that accept connections.
    errors
        Reasons why the addresses of other routes cannot be used, by name.
    """

    listening: tuple[str, ...]
    errors: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ConfigureRelay(Request[RelayState]):
    """Replace the configuration; unchanged routes and open connections are kept.

    Attributes
    ----------
    pods
        Pod names by address.
    seed
        Seed of the random losses; the current seed or None continues the running sequence.
    """

    pods: dict[str, str]
    routes: tuple[RelayRoute, ...]
    impairments: tuple[PodImpairment, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class PodCounters(Message):
    """Traffic of a pod since it was first configured."""

    receive_bytes: int
    transmit_bytes: int
    receive_packets: int
    transmit_packets: int
    receive_packets_dropped: int
    transmit_packets_dropped: int


@dataclass(frozen=True, kw_only=True)
class ReadImpairedCounts(Request[dict[str, int]]):
    """Return how many requests, or chunks under a bandwidth limit, have been impaired so far in each pod."""


@dataclass(frozen=True, kw_only=True)
class ReadCounters(Request[dict[str, PodCounters]]):
    """Return the counters of all configured pods by name."""
