"""What the relay does to single HTTP requests on their way to a pod: refuse, hold up, or cut the connection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from faultset.collector.platforms.api.impairments import Abort, Hold, Impairment, Reset

_REQUEST = re.compile(rb"(?:GET|POST|PUT|DELETE|PATCH|HEAD) (\S*) HTTP/1\.[01]\r\n")
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n"
    b"Connection: close\r\n\r\nservice unavailable"
)
"""The answer to a request that is refused."""


@dataclass(frozen=True, kw_only=True)
class RequestRule:
    """What happens to requests to one pod.

    Attributes
    ----------
    impairment
        Share of the requests over time, from which caller, and to which path.
    begun_s
        When it began, by the clock that `concerns` is given the time of.
    """

    impairment: Abort | Hold | Reset
    begun_s: float = 0.0

    def concerns(self, caller: str, data: bytes, rng: Random, now_s: float) -> bool:
        """Say whether what arrived begins a request that the rule is drawn for.

        Parameters
        ----------
        caller
            Name of the pod that sent it.
        """
        rule = self.impairment
        if rule.caller and rule.caller not in owners(caller):
            return False
        begun = _REQUEST.match(data)
        if begun is None or (rule.path and begun[1].partition(b"?")[0] != rule.path.encode()):
            return False
        return rng.random() < rule.share_at(now_s - self.begun_s)


def request_rule(impairment: Impairment, now_s: float) -> RequestRule | None:
    """Return the rule of an impairment of requests; None for one of packets."""
    return RequestRule(impairment=impairment, begun_s=now_s) if isinstance(impairment, Abort | Hold | Reset) else None


def owners(pod: str) -> tuple[str, str]:
    """Return the workloads that may own a pod, by its name: of a Deployment, or of a StatefulSet.

    >>> owners("user-timeline-5d4f7-abcde")
    ('user-timeline', 'user-timeline-5d4f7')
    """
    set_name = pod.rpartition("-")[0]
    return set_name.rpartition("-")[0], set_name
