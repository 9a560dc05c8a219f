"""Long telemetry becomes a recording, with the incidents of the incident file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from faultset.core.errors import DataError, UsageError
from faultset.datasets import Dataset, open_dataset, verify
from faultset.datasets.format.schemas import LONGEST_VIEW_NS
from faultset.datasets.imports.telemetry.incidents import plan_recording
from faultset.datasets.imports.telemetry.run import TelemetryOptions, import_telemetry

T = 1_760_000_000
NS = 10**9
HOUR = 3600


def write_metrics(path: Path, start: int, seconds: int) -> None:
    """Write a gauge of two services, and the increases of a counter by 2 in each step of 15 s."""
    times = range(start, start + seconds, 15)
    rows = [f"{time},{service},queue_length,gauge,{time - start}" for time in times for service in ("cart", "web")]
    path.write_text("time,service,metric,kind,value\n" + "\n".join(rows) + "\n")


def write_deltas(path: Path, start: int, seconds: int) -> None:
    points = [
        {"startTimeUnixNano": str((time - 15) * NS), "timeUnixNano": str(time * NS), "asDouble": 2.0}
        for time in range(start, start + seconds, 15)
    ]
    metric = {"name": "orders", "sum": {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": points}}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "web"}}]}
    content = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]}
    path.write_text(json.dumps(content))


def write_traces(path: Path, start: int, seconds: int) -> None:
    lines = []
    for number, time in enumerate(range(start, start + seconds, 30)):
        for offset, service, parent in ((0, "web", ""), (1, "cart", f"{2 * number + 1:016x}")):
            span = {
                "traceId": f"{number + 1:032x}",
                "spanId": f"{2 * number + offset + 1:016x}",
                "parentSpanId": parent,
                "name": "GET",
                "startTimeUnixNano": str(time * NS + offset),
                "endTimeUnixNano": str(time * NS + 5_000_000 - offset),
            }
            resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
            lines.append(json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three hours of metrics and traces."""
    folder = tmp_path / "shop"
    folder.mkdir()
    write_metrics(folder / "metrics.csv", T, 3 * HOUR)
    write_deltas(folder / "orders.json", T, 3 * HOUR)
    write_traces(folder / "traces.jsonl", T, 3 * HOUR)
    return folder


def imported(files: Path, out: Path, **options: object) -> Dataset:
    import_telemetry([files], out, TelemetryOptions(**options), workers=1)  # type: ignore[arg-type]
    return open_dataset(out)


def test_more_than_two_hours_without_incidents_become_a_recording_without_faults(files: Path, tmp_path: Path) -> None:
    dataset = imported(files, tmp_path / "out")
    (recording,) = dataset.recordings()

    assert not dataset.episodes
    assert (recording.start_ns, len(recording.view.chunks), len(recording.view.segments)) == (T * NS, 3, 1)
    assert recording.context.services == ("cart", "web")
    assert recording.context.calls == (("web", "cart"),)
    assert (recording.context.workload_entry, recording.context.sampling_step_s) == ("web", 15.0)
    assert len(recording.incidents()) == 0
    assert len(recording.table("spans")) == 2 * 3 * HOUR // 30
    levels = recording.wide(step_s=15)[("cart", "queue_length")]
    np.testing.assert_array_equal(levels, np.arange(0, 3 * HOUR, 15))
    assert not [finding for finding in verify(tmp_path / "out") if finding.severity == "error"]
    assert not (tmp_path / "out.staged").exists()


def test_increases_are_counted_on_across_chunks(files: Path, tmp_path: Path) -> None:
    (recording,) = imported(files, tmp_path / "out").recordings()
    rows = recording.view.table("metrics", filters=[("metric", "==", "orders_total")]).to_pandas().sort_values("time")

    assert rows["value"].tolist() == [2.0 * number for number in range(1, 3 * HOUR // 15 + 1)]
    assert set(rows["kind"]) == {"counter"}


def test_incidents_of_the_file_become_incidents_of_the_recording(files: Path, tmp_path: Path) -> None:
    incidents = tmp_path / "incidents.yaml"
    first = {"name": "slow", "start": T + 3500, "end": T + 3900, "cause": "cart", "fault": "memory-leak"}
    second = {"start": T + 8000, "end": T + 8100}
    incidents.write_text(yaml.safe_dump({"incidents": [second, first], "healthy": [{"start": T, "end": T + 3500}]}))
    (recording,) = imported(files, tmp_path / "out", incidents=incidents).recordings()
    known, unknown = recording.truth.incidents

    assert (known.fault, known.targets, known.parameters["name"]) == ("memory-leak", ("cart",), "slow")
    assert (known.start_ns, known.end_ns) == ((T + 3500) * NS, (T + 3900) * NS)
    assert (unknown.fault, unknown.targets, unknown.verdict) == ("incident", (), "unknown")
    # time that is neither an incident nor healthy is not labelled
    assert [(row["start"] // NS - T, row["end"] // NS - T) for row in recording.truth.rows("voids")] == [
        (3900, 7200), (7200, 8000), (8100, 10785),
    ]  # fmt: skip
    assert [stretch.length_s for stretch in recording.truth.healthy_stretches] == [3500.0]


def test_a_gap_of_half_an_hour_starts_a_segment(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    write_metrics(folder / "monday.csv", T, 3 * HOUR)
    write_metrics(folder / "tuesday.csv", T + 24 * HOUR, HOUR)
    (recording,) = imported(folder, tmp_path / "out").recordings()

    assert [segment.start_ns // NS - T for segment in recording.view.segments] == [0, 24 * HOUR]


def test_the_length_decides_unless_the_user_does(files: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.mkdir()
    write_metrics(short / "metrics.csv", T, HOUR)

    assert len(imported(short, tmp_path / "a").episodes) == 1
    assert len(imported(short, tmp_path / "b", recording=True).recordings()) == 1
    assert len(imported(files, tmp_path / "c", recording=False).episodes) == 1
    assert len(imported(files, tmp_path / "d", at="2025-10-09T10:00:00Z").episodes) == 1
    with pytest.raises(UsageError, match="--at cuts an episode, and --recording writes a recording"):
        imported(files, tmp_path / "e", at="2025-10-09T10:00:00Z", recording=True)


def test_an_incident_in_a_gap_is_refused(tmp_path: Path) -> None:
    folder, incidents = tmp_path / "shop", tmp_path / "incidents.yaml"
    folder.mkdir()
    write_metrics(folder / "monday.csv", T, 3 * HOUR)
    write_metrics(folder / "tuesday.csv", T + 24 * HOUR, HOUR)
    incidents.write_text(yaml.safe_dump([{"start": T + 12 * HOUR, "end": T + 13 * HOUR, "cause": "cart"}]))

    with pytest.raises(DataError, match="must start within the telemetry, but the incident at 2025-10-09 20:53"):
        imported(folder, tmp_path / "out", incidents=incidents)


def test_a_year_with_few_rows_has_few_chunks_and_dense_days_have_one_an_hour() -> None:
    day_ns = 24 * HOUR * NS
    for days, rows, chunks in ((365, 100, 300), (10, 100, 240), (365, 365 * 24 * 400_000, 365 * 24)):
        plan = plan_recording([(0, days * day_ns)], rows, (), ())
        assert len([*plan.windows()]) == pytest.approx(chunks, abs=1)
    assert plan_recording([(0, 40_000 * day_ns)], 1, (), ()).chunk_ns == LONGEST_VIEW_NS
