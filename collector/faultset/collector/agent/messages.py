"""What is asked of a node agent and what it answers: JSON objects, checked where they arrive.

The agent has the standard library only, so these dataclasses are read here and not by pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.protocol import LEASE_S

MessageT = TypeVar("MessageT", bound="AgentMessage")
AGENT_MESSAGES: dict[str, type[AgentMessage]] = {}
"""All types of messages by name."""


@dataclass(frozen=True, kw_only=True)
class AgentMessage:
    """Base of all messages; as requests they have a method and a path."""

    method: ClassVar[str] = "POST"
    path: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        AGENT_MESSAGES[cls.__name__] = cls

    def as_record(self) -> dict[str, Any]:
        """Return the JSON object; fields that are None are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def read_message(kind: type[MessageT], record: object) -> MessageT:
    """Return the message of a JSON object; raise AgentError, one sentence, when it is none.

    Numbers and truth values may be texts, as in the query of a GET.
    """
    if not isinstance(record, Mapping):
        raise AgentError(f"{kind.__name__} is a JSON object; found {record!r}")
    names = [one.name for one in fields(kind)]
    unknown = [str(name) for name in record if name not in names]
    if unknown:
        raise AgentError(f"{kind.__name__} has no {unknown[0]}; it has {', '.join(names) or 'nothing'}")
    values = {}
    for one in fields(kind):
        if one.name in record:
            values[one.name] = _READERS[str(one.type)](record[one.name], one.name)
        elif one.default is MISSING and one.default_factory is MISSING:
            _READERS[str(one.type)](None, one.name)
    return kind(**values)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise AgentError(f"{name} is needed, as a text; found {value!r}")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise AgentError(f"{name} is needed, as a list of texts; found {value!r}")
    return tuple(value)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AgentError(f"{name} is needed, as a number; found {value!r}")
    return value


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise AgentError(f"{name} is needed, as a whole number; found {value!r}")
    return value


def _truth(value: Any, name: str) -> bool:
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise AgentError(f"{name} is needed, as true or false; found {value!r}")
    return value


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise AgentError(f"{name} is needed, as an object; found {value!r}")
    return dict(value)


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "str": _text,
    "str | None": _text,
    "tuple[str, ...]": _texts,
    "float": _number,
    "int": _whole,
    "bool": _truth,
    "dict[str, Any]": _object,
}


@dataclass(frozen=True, kw_only=True)
class ReadCapabilities(AgentMessage):
    """What can the agent do?"""

    method: ClassVar[str] = "GET"
    path: ClassVar[str] = "/capabilities"


@dataclass(frozen=True, kw_only=True)
class AgentCapabilities(AgentMessage):
    """What an agent can do, with the reasons for what it cannot; an agent inside a pod names no namespace."""

    loss: bool
    partition: bool
    delay: bool
    kill: bool
    reasons: dict[str, Any] = field(default_factory=dict)
    namespace: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadPackets(AgentMessage):
    """How many packets has the impairment of a pod met?"""

    method: ClassVar[str] = "GET"
    path: ClassVar[str] = "/counters"
    pod_uid: str


@dataclass(frozen=True, kw_only=True)
class PacketCount(AgentMessage):
    """Packets that an impairment has met; 0 without one."""

    packets: int


@dataclass(frozen=True, kw_only=True)
class ReadNode(AgentMessage):
    """How busy is the node? `reset` begins again with the worst delay."""

    method: ClassVar[str] = "GET"
    path: ClassVar[str] = "/stats"
    reset: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeStatistics(AgentMessage):
    """Load and clock of a node, and the uids of pods that are impaired."""

    load_average: float
    cores: int
    worst_delay_s: float
    time_ns: int
    impaired: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImpairPod(AgentMessage):
    """Impair a pod's network, in place of any impairment before, for as long as the lease is renewed."""

    path: ClassVar[str] = "/impair"
    pod_uid: str
    impairment: dict[str, Any]
    lease_s: float = LEASE_S


@dataclass(frozen=True, kw_only=True)
class RenewLeases(AgentMessage):
    """Prolong the leases of pods."""

    path: ClassVar[str] = "/renew"
    pod_uids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RenewedLeases(AgentMessage):
    """Uids of pods that had no lease."""

    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LiftImpairment(AgentMessage):
    """End the impairment of a pod, by uid or, where the collector no longer knows that, by name."""

    path: ClassVar[str] = "/lift"
    pod_uid: str | None = None
    pod: str | None = None


@dataclass(frozen=True, kw_only=True)
class KillContainer(AgentMessage):
    """Send a signal to the main process of a container."""

    path: ClassVar[str] = "/kill"
    pod_uid: str
    container_id: str
    signal: int = 9


@dataclass(frozen=True, kw_only=True)
class KilledProcess(AgentMessage):
    """The process that was sent a signal, as the node numbers it."""

    pid: int


@dataclass(frozen=True, kw_only=True)
class PrepareVolumes(AgentMessage):
    """Make folders that the image's user may write."""

    path: ClassVar[str] = "/prepare-volumes"
    paths: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemoveVolumes(AgentMessage):
    """Remove folders with all that is in them."""

    path: ClassVar[str] = "/remove-volumes"
    paths: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Acknowledgement(AgentMessage):
    """It is done."""
