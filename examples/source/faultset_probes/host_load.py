"""A source that adds a series to the metrics: the load average of the machine."""

from __future__ import annotations

import os
from typing import Any

from faultset.collector.sources.contract import SampledSource
from faultset.datasets.metrics.roles import MetricRole


class HostLoad(SampledSource):
    """The load average of the machine that collects."""

    table = "metrics"
    metric_roles = (
        MetricRole(
            source="host-load",
            metric="host_load1",
            role="saturation",
            unit="1",
            kind="gauge",
            combine="mean",
            meaning="runnable processes, averaged over a minute",
        ),
    )

    def sample(self) -> list[dict[str, Any]]:
        """Read the load average."""
        return [{"metric": "host_load1", "value": os.getloadavg()[0]}]
