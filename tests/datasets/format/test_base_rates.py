"""Base rates on the card: errors of healthy systems, counted in the references only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.times import SECOND_NS
from faultset.datasets.format.cards import build_base_rate_table, measure_base_rates
from faultset.datasets.format.labels import Label
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version
from tests.datasets.recorded_samples import at, context, incident, samples, spans

LABEL = cast(Label, SimpleNamespace(episode="abc", view_start_ns=0, reference_end_ns=60 * SECOND_NS))


def write(root: Path, table: str, column: str, values: list[Any], time: str = "time") -> None:
    folder = root / "episodes" / "abc" / "telemetry"
    folder.mkdir(parents=True, exist_ok=True)
    # half of the rows lie in the reference of a minute
    times = [20 * SECOND_NS * number for number in range(len(values))]
    rows = {time: pa.array(times).cast(pa.timestamp("ns", tz="UTC")), column: pa.array(values)}
    pq.write_table(pa.table(rows), folder / f"{table}.parquet")


def test_only_what_lies_in_the_reference_counts(tmp_path: Path) -> None:
    write(tmp_path, "spans", "status", ["error", "ok", "unset", "error", "error", "error"])
    write(tmp_path, "logs", "level", ["info", "warning", None, "error", "error", "error"])
    write(tmp_path, "events", "type", ["Warning", "Normal", "Warning", "Warning", "Warning", "Warning"])
    write(tmp_path, "requests", "outcome", ["ok", "ok", "http_error", "timeout", "refused", "ok"], "scheduled")
    rates = measure_base_rates(tmp_path, LABEL)
    assert round(rates.error_spans, 1) == 333.3
    assert rates.bad_lines == 1.0
    assert rates.warning_events == 120.0
    assert round(rates.failed_requests, 1) == 33.3


def test_the_card_has_a_line_for_each_application(tmp_path: Path) -> None:
    write(tmp_path, "events", "type", ["Warning", "Normal"])
    text = build_base_rate_table(tmp_path, {"abc": LABEL}, {"abc": "Hotel"})
    assert "| Hotel | 0.0 (0.0 to 0.0) | 0.0 (0.0 to 0.0) | 60.0 (60.0 to 60.0) | 0.0 % (0.0 to 0.0) |" in text


def test_only_healthy_time_of_recordings_counts(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, context(services=("geo",), calls=()))
    starts = [100, 250, 350, 420, 450, 599]
    table = spans([(start, 1) for start in starts])
    # an incident from 200 to 310 and a void stretch from 400 to 500
    status = pa.array(["error", "error", "unset", "error", "error", "unset"])
    table = table.set_column(table.schema.get_field_index("status"), "status", status)
    truth = {
        "incidents": [incident("a", 200, 100)],
        "voids": [{"start": at(400), "end": at(500), "reason": "host", "detail": "busy"}],
    }
    writer.append(at(0), at(600), {"metrics": [samples(0, 600)], "spans": [table]}, truth=truth)
    create_version(tmp_path, provenance={"source": "test"})
    card = (tmp_path / "README.md").read_text("utf-8")
    assert "Medians of the healthy time of chunks" in card
    assert "| bare | 333.3 (333.3 to 333.3) | 0.0 (0.0 to 0.0) | 0.0 (0.0 to 0.0) | 0.0 % (0.0 to 0.0) |" in card
