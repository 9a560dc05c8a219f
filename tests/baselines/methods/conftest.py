from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from faultset.datasets.format.schemas import METRICS, TABLES, stored_schema
from faultset.datasets.views import EpisodeView
from tests.baselines.metric_series import CALLS, ROLES, SECOND, SERVICES, Series, World


@pytest.fixture(scope="session")
def world(example, faulty, alter) -> World:
    """Build an episode with metrics only, one sample per second."""
    start = example.view(faulty).window[0]

    def make(series: Series, services: tuple[str, ...] = SERVICES, calls: Any = CALLS) -> EpisodeView:
        schema = stored_schema(METRICS)
        rows: dict[str, list[Any]] = {name: [] for name in schema.names}
        for (service, metric), values in series.items():
            count = len(values)
            rows["time"] += [start + second * SECOND + SECOND // 2 for second in range(count)]
            rows["value"] += values.tolist()
            for name, text in {
                "episode": faulty,
                "service": service,
                "pod": f"{service}-0",
                "container": service,
                "metric": metric,
                "labels": "{}",
                "kind": "gauge",
            }.items():
                rows[name] += [text] * count
        table = pa.table({name: pa.array(rows[name], schema.field(name).type) for name in schema.names})

        def context(text: str) -> str:
            roles = [
                {"source": "test", "metric": metric, "role": role, "unit": "1", "kind": "gauge", "combine": "sum"}
                for metric, role in ROLES.items()
            ]
            changed = {"services": services, "calls": calls, "workload_entry": services[0], "metric_roles": roles}
            return json.dumps(json.loads(text) | changed)

        empty = dict.fromkeys(TABLES, lambda rows: rows.slice(0, 0))
        return alter(faulty, empty | {"metrics": lambda rows: table}, context=context)

    return make
