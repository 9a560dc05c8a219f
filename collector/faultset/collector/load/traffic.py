"""Traffic of clients: how their rate changes, and which regions they are in."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field

from faultset.collector.load.driver import LoadDriver, RequestResult
from faultset.collector.load.patterns import LoadPattern, parse_number
from faultset.collector.load.schedule import ScheduledRequest
from faultset.core.documents import STRICT, check_type, parse_object
from faultset.core.errors import UsageError

LARGEST_ROUND_TRIP_S = 5.0
_ROUND_TRIP_SIGMA = 0.1
_REGION = re.compile(r"([a-z0-9-]{1,40})=([^:]*):(.*)")


@dataclass(frozen=True, kw_only=True)
class Region:
    """Clients at the same distance from the application."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    share: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Relative share of the requests; the shares need not sum to one."""
    round_trip_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Median time to the application and back; it varies by about a tenth between requests."""


def parse_regions(text: str) -> tuple[Region, ...]:
    """Return the regions in a string such as `eu=0.6:20ms,us=0.4:90ms`; raise UsageError if one is invalid."""
    regions: list[Region] = []
    for item in filter(None, (word.strip() for word in text.split(","))):
        match = _REGION.fullmatch(item)
        if match is None:
            raise UsageError(f"a region must be NAME=SHARE:TIME, for instance eu=0.6:20ms, but is {item!r}")
        name, share, round_trip = match.groups()
        if name in {region.name for region in regions}:
            raise UsageError(f"region {name} occurs twice; give each region once")
        max_ms = 1000 * LARGEST_ROUND_TRIP_S
        regions.append(
            Region(
                name=name,
                share=parse_number(f"the share of region {name}", share, 1e-6, 1e6),
                round_trip_s=parse_number(f"the time of region {name} in ms", round_trip.removesuffix("ms"), 0, max_ms)
                / 1000,
            )
        )
    return tuple(regions)


class RegionalDriver:
    """A load driver that delays requests and responses as if clients were in several regions."""

    def __init__(self, driver: LoadDriver, regions: Sequence[Region], seed: int):
        self._driver, self._regions = driver, tuple(regions)
        self._bounds = np.cumsum([region.share for region in regions])
        self._rng = np.random.default_rng([seed, 21])

    async def send(self, request: ScheduledRequest) -> RequestResult:
        index = np.searchsorted(self._bounds, self._rng.random() * self._bounds[-1], side="right")
        delay_s = self._regions[int(index)].round_trip_s * float(self._rng.lognormal(0, _ROUND_TRIP_SIGMA)) / 2
        await asyncio.sleep(delay_s)
        result = await self._driver.send(request)
        await asyncio.sleep(delay_s)
        return result

    async def close(self) -> None:
        await self._driver.close()


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Pattern of the rate, and regions of the clients; without regions, nothing is delayed."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    pattern: LoadPattern = field(default_factory=LoadPattern)
    regions: tuple[Region, ...] = ()

    def to_json(self) -> str:
        """Return the traffic as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Traffic:
        """Read the text that `to_json` returns; raise DataError if it is invalid."""
        return check_type(parse_object(text, "traffic"), Traffic, "traffic")

    @property
    def name(self) -> str:
        """The pattern and the names of the regions, for display."""
        regions = "+".join(region.name for region in self.regions)
        return f"{self.pattern.as_text()} from {regions}" if regions else self.pattern.as_text()

    def as_record(self) -> dict[str, Any]:
        """Return the traffic as stored in labels and contexts."""
        return {"load": self.pattern.as_record(), "regions": [asdict(region) for region in self.regions]}


CONSTANT_TRAFFIC = Traffic()
