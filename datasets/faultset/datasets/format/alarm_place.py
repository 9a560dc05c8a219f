"""Where an alarm was seen: on which service, and by which metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from faultset.core.reading.documents import STRICT
from faultset.datasets.format.names import Name


@dataclass(frozen=True, kw_only=True)
class AlarmPlace:
    """The service whose metric raised an alarm; where a fault shows, which need not be where it is."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    service: Name
    """Service on which it was seen."""
    metric: Name | None = None
    """Stored name of the metric, or a pattern with `*` for several statistics of it; None where it is not known."""
