"""What kubectl asks of a cluster at a moment; recordings and live platforms answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from faultset.datasets.kubectl.object_tables import Cells, Object
from faultset.datasets.kubectl.printing import Event


class PodLogLine(NamedTuple):
    """A line that a container has logged."""

    time_ns: int
    container: str
    level: str | None
    message: str


class Usage(NamedTuple):
    """CPU and memory that a container uses."""

    pod: str
    container: str
    cores: float
    memory_bytes: float


class Runs(NamedTuple):
    """Restarts of a pod's containers, and those begins of later runs that are known, the oldest first."""

    restarts: int
    starts_ns: Sequence[int]


class ClusterState(Protocol):
    """A cluster at a moment, as kubectl shows it.

    All methods raise NegativeAnswer for what the state does not hold, and for what must not be shown.

    Attributes
    ----------
    name
        Of the context that kubectl shows.
    namespace
        Of the application.
    is_partial
        Whether fields may be missing because they were not recorded.
    """

    name: str
    namespace: str
    is_partial: bool

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds of objects that there may be, without events."""
        ...

    @property
    def now_ns(self) -> int:
        """The moment in nanoseconds since 1970."""
        ...

    def check_namespace(self, namespace: str) -> None:
        """Raise unless a namespace is the application's."""
        ...

    def kind_of(self, word: str) -> str:
        """Return the kind that a word stands for, Event included."""
        ...

    def objects(self, kind: str, selector: str | None = None) -> list[Object]:
        """Return the objects of a kind in the order of their names, those that a label selector selects."""
        ...

    def present_name(self, kind: str, name: str) -> str:
        """Return the name of the object that a name stands for."""
        ...

    def created_ns(self, body: Object) -> int | None:
        """Return when an object came to be; None when it is unknown."""
        ...

    def cells(self, body: Object) -> Cells:
        """Return the cells of an object's table that its fields do not tell."""
        ...

    def events(self) -> list[Event]:
        """Return the last occurrence of every event, the oldest first."""
        ...

    def pod_names(self) -> Iterable[str]:
        """Return the names of the pods, in the order in which they came to be."""
        ...

    def pods_of(self, kind: str, name: str) -> list[str]:
        """Return the pods of a workload or Service; the first is the one whose lines are shown."""
        ...

    def log_lines(self, pod: str) -> list[PodLogLine]:
        """Return what a pod has logged, the oldest line first."""
        ...

    def runs(self, pod: str) -> Runs:
        """Return the restarts of a pod's containers."""
        ...

    def containers(self, pod: str) -> set[str]:
        """Return the names of a pod's containers."""
        ...

    def usage(self, pods: Sequence[str] | None) -> list[Usage]:
        """Return what containers of some pods use, of all by default; pods without samples are left out."""
        ...
