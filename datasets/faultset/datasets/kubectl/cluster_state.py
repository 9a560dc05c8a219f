"""The interface through which kubectl reads a cluster; recordings and live platforms implement it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from faultset.datasets.kubectl.object_tables import Cells, Object
from faultset.datasets.kubectl.printing import Event


class PodLogLine(NamedTuple):
    """A log line of a container."""

    time_ns: int
    container: str
    level: str | None
    message: str


class Usage(NamedTuple):
    """CPU and memory use of a container."""

    pod: str
    container: str
    cores: float
    memory_bytes: float


class Runs(NamedTuple):
    """Restarts of a pod's containers, and the known start times of later runs in ascending order."""

    restarts: int
    starts_ns: Sequence[int]


class ClusterState(Protocol):
    """A cluster at a point in time, as kubectl shows it.

    All methods raise NegativeAnswer for data that the state lacks or must not show.

    Attributes
    ----------
    name
        Name of the kubectl context.
    namespace
        Namespace of the application.
    is_partial
        Whether fields may be missing because they were not recorded.
    """

    name: str
    namespace: str
    is_partial: bool

    @property
    def kinds(self) -> Sequence[str]:
        """Supported kinds of objects, without events."""
        ...

    @property
    def now_ns(self) -> int:
        """Current time in nanoseconds since 1970."""
        ...

    def check_namespace(self, namespace: str) -> None:
        """Raise unless a namespace is the application's."""
        ...

    def kind_of(self, word: str) -> str:
        """Return the kind for any of its names; Event is a kind too."""
        ...

    def objects(self, kind: str, selector: str | None = None) -> list[Object]:
        """Return the objects of a kind that match a label selector, sorted by name."""
        ...

    def find_current_name(self, kind: str, name: str) -> str:
        """Return the current name of an object, whose name in a request may be outdated."""
        ...

    def created_ns(self, body: Object) -> int | None:
        """Return the creation time of an object, or None if unknown."""
        ...

    def cells(self, body: Object) -> Cells:
        """Return the table cells of an object that cannot be computed from its fields."""
        ...

    def events(self) -> list[Event]:
        """Return the last occurrence of every event, oldest first."""
        ...

    def pod_names(self) -> Iterable[str]:
        """Return the names of the pods in the order of their creation."""
        ...

    def pods_of(self, kind: str, name: str) -> list[str]:
        """Return the pods of a workload or Service; `kubectl logs` shows the first."""
        ...

    def log_lines(self, pod: str) -> list[PodLogLine]:
        """Return the log lines of a pod, oldest first."""
        ...

    def runs(self, pod: str) -> Runs:
        """Return the restarts of a pod's containers."""
        ...

    def containers(self, pod: str) -> set[str]:
        """Return the names of a pod's containers."""
        ...

    def usage(self, pods: Sequence[str] | None) -> list[Usage]:
        """Return the CPU and memory use of the containers of pods, by default of all pods; pods without samples are
        left out."""
        ...
