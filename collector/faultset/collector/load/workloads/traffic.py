"""What clients do beyond mix and rate: the pattern of the rate, and the regions that they send from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from faultset.collector.load.workloads.patterns import LoadPattern
from faultset.collector.load.workloads.regions import Region
from faultset.core.reading.documents import STRICT, checked, parse_object


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Pattern of the rate, and regions of the clients; none means that all are near."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    pattern: LoadPattern = field(default_factory=LoadPattern)
    regions: tuple[Region, ...] = ()

    def to_json(self) -> str:
        """Write it as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Traffic:
        """Read what `to_json` wrote; raise DataError when it is none."""
        return checked(parse_object(text, "traffic"), Traffic, "traffic")

    @property
    def name(self) -> str:
        """The pattern, and the regions by name, in one word for people."""
        away = "+".join(region.name for region in self.regions)
        return f"{self.pattern.as_text()} from {away}" if away else self.pattern.as_text()

    def as_record(self) -> dict[str, Any]:
        """Return what labels and contexts say of it."""
        return {"load": self.pattern.as_record(), "regions": [asdict(region) for region in self.regions]}


CONSTANT_TRAFFIC = Traffic()
