"""Messages of the node, the relay and the telemetry process of the embedded platform."""

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


TELEMETRY_TABLES = ("metrics", "spans")


@dataclass(frozen=True, kw_only=True)
class ScrapeTarget(Message):
    """A pod of the application; `address` is where it serves metrics, None if it does not."""

    pod: str
    service: str | None
    container: str | None
    address: tuple[str, int] | None


@dataclass(frozen=True, kw_only=True)
class ConfigureTelemetry(Request[None]):
    """Replace the list of pods."""

    targets: tuple[ScrapeTarget, ...]


@dataclass(frozen=True, kw_only=True)
class StateSample(Message):
    """A sample of an object's state with a metric name of kube-state-metrics; `kind` is counter or gauge."""

    metric: str
    service: str | None
    pod: str | None
    container: str | None
    labels: dict[str, str]
    kind: str
    value: float


@dataclass(frozen=True, kw_only=True)
class ReplaceState(Request[None]):
    """Replace the samples of object states, which are repeated at every scrape."""

    samples: tuple[StateSample, ...]


@dataclass(frozen=True, kw_only=True)
class WriteSnapshot(Request[dict[str, int]]):
    """Write the rows of `[start_ns, end_ns)` to `<table>.arrow` in a folder; return the number of rows by table.

    Attributes
    ----------
    folder
        None for the default folder of the process.
    """

    start_ns: int
    end_ns: int
    folder: Path | None = None
    tables: tuple[str, ...] = TELEMETRY_TABLES


@dataclass(frozen=True, kw_only=True)
class DiscardTelemetry(Request[None]):
    """Remove the rows of a table before a time."""

    table: str
    before_ns: int


@dataclass(frozen=True, kw_only=True)
class TelemetryHealth(Message):
    """Counts of received telemetry and the worst delay of a scrape."""

    spans: int
    samples: int
    scrapes: int
    scrape_failures: dict[str, int]
    last_scrape_ns: int | None
    worst_lag_ms: float


@dataclass(frozen=True, kw_only=True)
class ReadHealth(Request[TelemetryHealth]):
    """Return the health of telemetry.

    Attributes
    ----------
    reset_lag
        Reset the worst delay, for example when the load starts.
    """

    reset_lag: bool = False
