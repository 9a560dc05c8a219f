"""Impairments of a pod's network."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from faultset.collector.platforms.api.courses import COURSE_PARAMETERS, Course


@dataclass(frozen=True, kw_only=True)
class Loss(Course):
    """Drop a share of the packets that a pod sends."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Delay(Course):
    """Hold back every packet that a pod sends."""

    latency_s: float
    jitter_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Partition(Course):
    """Drop every packet from and to a pod, whenever its intensity is above zero."""


@dataclass(frozen=True, kw_only=True)
class Bandwidth(Course):
    """Let a pod send so many bytes a second at most, whenever the intensity is above zero; what is more waits."""

    bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class _OfRequests(Course):
    """A share of the HTTP requests to a pod.

    Attributes
    ----------
    caller
        Only those of this service; of all when empty.
    path
        Only those to this path; to all when empty.
    """

    share: float
    caller: str = ""
    path: str = ""

    def share_at(self, elapsed_s: float) -> float:
        """Return the share so many seconds after the begin.

        >>> Abort(share=0.4, rise_s=10.0).share_at(5.0)
        0.2
        """
        return self.share * self.intensity_at(elapsed_s)


@dataclass(frozen=True, kw_only=True)
class Abort(_OfRequests):
    """Answer requests with status 503, before they reach the pod."""

    act: Literal["abort"] = "abort"


@dataclass(frozen=True, kw_only=True)
class Reset(_OfRequests):
    """Cut the connection when a request begins, before it reaches the pod."""

    act: Literal["reset"] = "reset"


@dataclass(frozen=True, kw_only=True)
class Hold(_OfRequests):
    """Hold requests up for a time before they reach the pod."""

    latency_s: float


Impairment = Loss | Delay | Partition | Bandwidth | Abort | Reset | Hold


def impairment_record(impairment: Impairment) -> dict[str, Any]:
    """Return an impairment as the relay, the node agent and the journal write it.

    >>> impairment_record(Loss(probability=0.1))
    {'kind': 'loss', 'probability': 0.1}
    """
    values = dataclasses.asdict(impairment)
    said = {name: value for name, value in values.items() if value or name not in COURSE_PARAMETERS}
    return {"kind": type(impairment).__name__.lower(), **said}
