"""What core-2's card and docs claim about its recordings holds in the files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.collector.faults.registry import faults
from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset
from faultset.datasets.format.versions import list_versions

CORE = Path(__file__).parents[3] / "datasets" / "core-2"
LARGEST_FALSE_ALARM_RATE = 0.01


@pytest.fixture(scope="module")
def recordings() -> list[Any]:
    return list(open_dataset(CORE).recordings())


@pytest.fixture(scope="module")
def provenance() -> dict[str, Any]:
    (*_, latest) = list_versions(CORE)
    content: dict[str, Any] = json.loads((CORE / "versions" / f"{latest}.json").read_text("utf-8"))
    return content["provenance"]


def read_table(recording: Any, table: str, columns: list[str], **options: Any) -> pa.Table:
    """Return a table of the first chunk of a recording."""
    path = recording.path / recording.view.chunks[0].folder / "telemetry" / f"{table}.parquet"
    return pq.read_table(parquet_path(path), columns=columns, **options)


def list_campaigns(provenance: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the provenance of each campaign that was merged."""
    if "merged_from" not in provenance:
        yield provenance
    for part in provenance.get("merged_from", ()):
        yield from list_campaigns(part["provenance"])


def test_clients_notice_no_dormant_fault(recordings: list[Any]) -> None:
    verdicts = defaultdict(set)
    for recording in recordings:
        for incident in recording.truth.incidents:
            if faults()[incident.fault].dormant_reason:
                verdicts[incident.fault].add(incident.verdict)
    assert len(verdicts) == 5
    assert "manifest" not in set().union(*verdicts.values())


def test_the_client_test_holds_its_rate_on_at_least_two_hundred_healthy_windows(provenance: dict[str, Any]) -> None:
    counts = provenance["judged_from"]["false_alarms"]
    windows = sum(row["windows"] for row in counts)
    assert windows >= 200
    assert sum(row["client_alarms"] for row in counts) <= LARGEST_FALSE_ALARM_RATE * windows


def test_decoys_of_several_kinds_hit_nearly_all_services_whether_they_are_targets_or_not(recordings: list[Any]) -> None:
    services, kinds, targets, all_services = (defaultdict(set) for _ in range(4))
    for recording in recordings:
        app = recording.context.app
        all_services[app] |= set(recording.context.services)
        targets[app] |= {target for incident in recording.truth.incidents for target in incident.targets}
        for decoy in recording.truth.rows("decoys"):
            kinds[app].add(decoy["decoy"])
            services[app].add(decoy["service"])
    for app, names in all_services.items():
        assert len(kinds[app]) >= 6
        assert len(services[app]) > 0.85 * len(names)
        assert len(services[app] & targets[app]) > 0.8 * len(targets[app])
        assert services[app] & (names - targets[app]) or targets[app] == names


def test_tidb_writes_at_least_five_lines_of_log_a_second(recordings: list[Any]) -> None:
    for recording in recordings:
        if recording.context.app == "tidb":
            chunks = recording.view.chunks
            paths = (recording.path / chunk.folder / "telemetry" / "logs.parquet" for chunk in chunks)
            lines = sum(pq.read_metadata(parquet_path(path)).num_rows for path in paths)
            assert lines > 5 * sum(chunk.end_ns - chunk.start_ns for chunk in chunks) / SECOND_NS


def test_containers_are_read_at_irregular_moments_of_their_own(recordings: list[Any]) -> None:
    by_app = {recording.context.app: recording for recording in recordings}
    for recording in by_app.values():
        chosen = [("metric", "==", "container_memory_working_set_bytes")]
        rows = read_table(recording, "metrics", ["time", "pod"], filters=chosen)
        times = defaultdict(list)
        for pod, time_ns in zip(rows["pod"].to_pylist(), rows["time"].cast(pa.int64()).to_pylist(), strict=True):
            times[pod].append(time_ns)
        gaps_ns = [later - earlier for each in times.values() for earlier, later in pairwise(sorted(each))]
        assert np.std(gaps_ns) > 0.5 * SECOND_NS
        assert len({time_ns for each in times.values() for time_ns in each}) > 0.9 * len(rows)


def test_the_card_names_commit_code_machine_plans_and_void_attempts(provenance: dict[str, Any]) -> None:
    for campaign in list_campaigns(provenance):
        assert len(campaign["collector"]["commit"]) == 40
        assert {"platforms", "runtime", "load", "verdicts"} <= campaign["collector"]["packages"].keys()
        assert campaign["host"]["cpu"]
        assert campaign["request"]["seed"]
        assert campaign["plans"]
        assert campaign["void_attempts"].keys() == {"with a fault", "without a fault"}
