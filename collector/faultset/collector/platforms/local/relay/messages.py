"""What can be asked of the relay, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.collector.ipc.channel import Message, Request
from faultset.collector.platforms.impairments import Abort, Bandwidth, Delay, Hold, Loss, Partition, Reset


@dataclass(frozen=True, kw_only=True)
class Target(Message):
    """Where an address leads: a port of a pod, or of a process that is none (`pod` is None)."""

    pod: str | None
    ip: str
    port: int


@dataclass(frozen=True, kw_only=True)
class RelayRoute(Message):
    """An address to listen on, and the targets behind it."""

    name: str
    ip: str
    port: int
    targets: tuple[Target, ...]


@dataclass(frozen=True, kw_only=True)
class PodImpairment(Message):
    """An impairment of the network of one pod."""

    pod: str
    impairment: Loss | Delay | Partition | Bandwidth | Abort | Reset | Hold


@dataclass(frozen=True, kw_only=True)
class RelayState(Message):
    """What the relay does now.

    Attributes
    ----------
    listening
        Names of routes that accept connections.
    errors
        Why the addresses of other routes cannot be used, by name.
    """

    listening: tuple[str, ...]
    errors: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ConfigureRelay(Request[RelayState]):
    """Take over a full state; what it says already is left alone, and connections stay.

    Attributes
    ----------
    pods
        Name of the pod at each address.
    seed
        Starts the random draws again when it differs from the one before; None keeps it.
    """

    pods: dict[str, str]
    routes: tuple[RelayRoute, ...]
    impairments: tuple[PodImpairment, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class PodCounters(Message):
    """What a pod has sent and received since its first configuration."""

    receive_bytes: int
    transmit_bytes: int
    receive_packets: int
    transmit_packets: int
    receive_packets_dropped: int
    transmit_packets_dropped: int


@dataclass(frozen=True, kw_only=True)
class ReadDisturbed(Request[dict[str, int]]):
    """Return how many requests to, or packets of, each pod a rule has met since the pod's first configuration."""


@dataclass(frozen=True, kw_only=True)
class ReadCounters(Request[dict[str, PodCounters]]):
    """Return the counters of every configured pod by its name."""
