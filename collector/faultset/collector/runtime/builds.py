"""Image tags of the application, and the defect of each in an episode.

All tags run the same program. Each episode draws which tag has which defect. Pods read the seed of this draw from a
Secret, whose content no table records.

A process reads its tag from the environment variable FAULTSET_BUILD. In images whose build tool cannot set variables,
the tag is the version of the installed distribution `faultset-build`.
"""

from __future__ import annotations

import importlib.metadata
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

TAGS = tuple(f"1.{minor}.{patch}" for minor in range(5) for patch in range(6))
"""All tags that exist."""

BUILD_DISTRIBUTION = "faultset-build"


@dataclass(frozen=True, kw_only=True)
class Defects:
    """Defects of a build."""

    database_port: int | None = None
    """Port that the database client connects to although nothing listens on it."""
    leak_mib_s: float = 0.0
    """MiB of memory that leak per second."""
    waiting_share: float = 0.0
    wait_s: float = 0.0
    """Share of the requests that wait, and for how many seconds."""
    failing_share: float = 0.0
    """Share of the requests that fail."""
    pool_size: int = 0
    kept_share: float = 0.0
    kept_s: float = 0.0
    """Size of the connection pool, the share of calls that return their connection late, and by how many seconds."""


HEALTHY = Defects()
WRONG_PORTS = tuple(Defects(database_port=port) for port in (27777, 27071, 27117))
LEAKS = tuple(Defects(leak_mib_s=rate) for rate in (9.0, 12.0, 15.0))
DELAYS = tuple(Defects(waiting_share=share, wait_s=wait_s) for share, wait_s in ((0.3, 0.4), (0.6, 0.15), (1.0, 0.1)))
FAILURES = tuple(Defects(failing_share=share) for share in (0.1, 0.25, 0.5))
HELD_CONNECTIONS = tuple(
    Defects(pool_size=size, kept_share=share, kept_s=kept_s)
    for size, share, kept_s in ((4, 0.3, 5.0), (6, 0.2, 4.0), (8, 0.25, 2.0))
)
_DEFECTS = (*WRONG_PORTS, *LEAKS, *DELAYS, *FAILURES, *HELD_CONNECTIONS)


@dataclass(frozen=True, kw_only=True)
class Builds:
    """The builds of one episode."""

    healthy: tuple[str, ...]
    """Tags without a defect, in random order; the first one is deployed."""
    defects: Mapping[str, Defects]
    """The defects of the other tags."""

    def defects_of(self, tag: str) -> Defects:
        """Return the defects of a tag; unknown tags have none."""
        return self.defects.get(tag, HEALTHY)

    def tag_with(self, defects: Defects) -> str:
        return next(tag for tag, other in self.defects.items() if other == defects)


@lru_cache(maxsize=16)
def draw_builds(seed: int) -> Builds:
    """Draw which tag has which defect; seed 0, which no episode has, keeps the tags in order."""
    tags = list(TAGS)
    if seed:
        random.Random(f"builds/{seed}").shuffle(tags)
    count = len(tags) - len(_DEFECTS)
    return Builds(healthy=tuple(tags[:count]), defects=dict(zip(tags[count:], _DEFECTS, strict=True)))


def installed_build() -> str | None:
    """Return the version of the distribution `faultset-build`; None if it is not installed."""
    try:
        return importlib.metadata.version(BUILD_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None
