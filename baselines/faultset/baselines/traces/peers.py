"""Infer the called service of client spans that do not record it, from attributes or from the usual callee."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from faultset.baselines.api.tables import parse_state

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_PEER_ATTRIBUTES = (
    "peer.service",
    "server.address",
    "net.peer.name",
    "net.peer.address",
    "url.full",
    "http.url",
    "http.host",
    "rpc.service",
    "db.system.name",
    "db.system",
    "messaging.system",
)
"""Current and deprecated OpenTelemetry attributes that name a called service, the most precise first."""


def find_named_peers(texts: Sequence[str], position: Mapping[str, int]) -> Ints:
    """Return the position of the service that each text of span attributes names, or -1; the last item is -1."""
    plain_names = {_plain_name(name): code for name, code in position.items()}
    return np.array(
        [*(_find_named_peer(parse_state(text), position, plain_names) for text in texts), -1], dtype=np.int64
    )


def _find_named_peer(attributes: Mapping[str, Any], position: Mapping[str, int], plain_names: Mapping[str, int]) -> int:
    """Return the service that attributes name, or -1.

    Examples
    --------
    >>> services = {"cart": 0, "redis-cart": 1}
    >>> plain = {_plain_name(name): code for name, code in services.items()}
    >>> _find_named_peer({"server.address": "cart.shop.svc.cluster.local:8080"}, services, plain)
    0
    >>> _find_named_peer({"rpc.service": "shop.CartService"}, services, plain)
    0
    >>> _find_named_peer({"server.address": "10.0.0.7", "db.system": "redis"}, services, plain)
    1
    """
    for key in _PEER_ATTRIBUTES:
        text = attributes.get(key)
        if not isinstance(text, str) or not text:
            continue
        if key.endswith(".system") or key == "db.system.name":
            stores = [code for name, code in position.items() if text.lower() in name.lower()]
            if len(stores) == 1:
                return stores[0]
            continue
        host = text.rpartition("://")[2].partition("/")[0].partition(":")[0]
        name = host.rpartition(".")[2] if key == "rpc.service" else host.partition(".")[0]
        code = position.get(host, position.get(name, plain_names.get(_plain_name(name), -1)))
        if code >= 0:
            return code
    return -1


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("service")


def fill_in_usual_peers(peer: Ints, calls_unnamed: Flags, parent: Ints, service: Ints, kind: Ints) -> Ints:
    """Fill in the peers of unanswered calls if all other calls of the same operation reach the same service."""
    crosses = (parent >= 0) & (service >= 0) & (service[parent] != service)
    answered = np.zeros(len(peer), dtype=bool)
    answered[parent[crosses]] = True
    reached = peer.copy()
    reached[parent[crosses]] = service[crosses]
    has_peer = reached >= 0
    size = int(kind.max(initial=-1)) + 1
    lowest, highest = np.full(size, np.iinfo(np.int64).max), np.full(size, -1)
    np.minimum.at(lowest, kind[has_peer], reached[has_peer])
    np.maximum.at(highest, kind[has_peer], reached[has_peer])
    usual = np.where(lowest == highest, highest, -1)[kind]
    return np.where(calls_unnamed & ~answered & (peer < 0), usual, peer)
