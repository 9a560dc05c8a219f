"""What the tags of the application's image stand for.

An image carries its tag in the environment variable FAULTSET_BUILD, or in the version of an installed distribution
`faultset-build` where the tool that makes images sets no variables. Most tags are good; some have a defect.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GOOD = frozenset({"1.0.0", "1.0.1", "1.0.3", "1.1.0", "1.1.2", "1.2.1"})
"""Tags without a defect."""

MISDIALLING: Mapping[str, int] = MappingProxyType({"1.0.2": 27777, "1.1.1": 27071, "1.2.0": 27117})
"""Tags whose database client dials a port where nothing listens, with that port."""

LEAKING: Mapping[str, float] = MappingProxyType({"1.0.4": 9.0, "1.1.3": 12.0, "1.2.2": 15.0})
"""Tags that never free what they allocate, with the MiB they allocate per second."""

SLOWED: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"1.0.5": (0.3, 0.4), "1.1.4": (0.6, 0.15), "1.2.3": (1.0, 0.1)}
)
"""Tags that wait for something at a share of the requests, with that share and the seconds."""

FAILING: Mapping[str, float] = MappingProxyType({"1.0.6": 0.1, "1.1.5": 0.25, "1.2.4": 0.5})
"""Tags that fail at a share of the requests, with that share."""

KEEPING: Mapping[str, tuple[int, float, float]] = MappingProxyType(
    {"1.0.7": (4, 0.3, 5.0), "1.1.6": (6, 0.2, 4.0), "1.2.5": (8, 0.25, 2.0)}
)
"""Tags that give connections back late: the size of their pool, the share of calls, and the seconds."""

TAGS = tuple(sorted({*GOOD, *MISDIALLING, *LEAKING, *SLOWED, *FAILING, *KEEPING}))
"""All tags."""

BUILD_DISTRIBUTION = "faultset-build"


def installed_build() -> str | None:
    """Return the tag that is installed beside this package, if there is one."""
    try:
        return importlib.metadata.version(BUILD_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class Defects:
    """What is wrong with a build."""

    database_port: int | None = None
    leak_mib_s: float = 0.0
    waiting_share: float = 0.0
    wait_s: float = 0.0
    failing_share: float = 0.0
    pool_size: int = 0
    kept_share: float = 0.0
    kept_s: float = 0.0


def defects(tag: str) -> Defects:
    """Return the defects of a tag; unknown tags have none."""
    share, wait_s = SLOWED.get(tag, (0.0, 0.0))
    pool_size, kept_share, kept_s = KEEPING.get(tag, (0, 0.0, 0.0))
    return Defects(
        database_port=MISDIALLING.get(tag),
        leak_mib_s=LEAKING.get(tag, 0.0),
        waiting_share=share,
        wait_s=wait_s,
        failing_share=FAILING.get(tag, 0.0),
        pool_size=pool_size,
        kept_share=kept_share,
        kept_s=kept_s,
    )
