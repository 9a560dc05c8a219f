"""Impairments of a pod's network."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from faultset.collector.ipc.messages import Message


@dataclass(frozen=True, kw_only=True)
class Loss(Message):
    """Drop a share of the packets that a pod sends."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Delay(Message):
    """Hold back every packet that a pod sends."""

    latency_s: float
    jitter_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Partition(Message):
    """Drop every packet from and to a pod."""


Impairment = Loss | Delay | Partition


def impairment_record(impairment: Impairment) -> dict[str, Any]:
    """Return an impairment as the relay, the node agent and the journal write it.

    >>> impairment_record(Loss(probability=0.1))
    {'kind': 'loss', 'probability': 0.1}
    """
    return {"kind": type(impairment).__name__.lower(), **dataclasses.asdict(impairment)}
