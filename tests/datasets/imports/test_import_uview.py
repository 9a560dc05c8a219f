"""A run of uview as a recording, on a miniature copy in its layout."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine, open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer

SECOND_US = 1_000_000
START_US = 1_755_689_464 * SECOND_US
"""2025-08-20 11:31:04, UTC"""
NAMES = ("frontend", "geo")
FULL = "unknown_service:frontend_service_process.csv.gz"
SAMPLE = "unknown_service:frontend_service_process_sampling_50.0x.csv.gz"


def trace(number: int, duration_us: int = 5_000, error: bool = False) -> str:
    start = START_US + number * SECOND_US // 2
    services = ";".join(f"unknown_service:{name}_service_process" for name in NAMES[: 1 + number % 2])
    return f"{number:032x},{duration_us / 1000},{start},{start + duration_us},{error},Nearby start,{services}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "DSBHotel"
    (root / "traces").mkdir(parents=True)
    rows = [trace(number, error=number == 7) for number in reversed(range(20))]
    (root / "traces" / FULL).write_bytes(gzip.compress("\n".join(rows).encode(), mtime=0))
    (root / "traces" / SAMPLE).write_bytes(gzip.compress("\n".join(rows[::2]).encode(), mtime=0))
    (root / "faults.csv").write_text(
        "start,end,service\n"
        "2025-08-20 11:31:07+0000,2025-08-20 11:31:09+0000,geo_service_container\n"
        "2025-08-20 11:31:08+0000,2025-08-20 11:31:10+0000,frontend_service_container\n"
    )
    return root


def test_it_keeps_what_importers_promise(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTSET_MUTATIONS", "12")
    check_importer("uview", root)


def test_traces_are_root_spans_and_metrics_of_the_services_that_took_part(root: Path, tmp_path: Path) -> None:
    import_dataset("uview", root, tmp_path / "out", workers=1)
    (recording,) = open_dataset(tmp_path / "out").recordings()
    spans = recording.table("spans").to_pylist()

    assert [span["trace_id"] for span in spans] == [f"{number:032x}" for number in range(20)]
    assert {span["service"] for span in spans} == {"frontend_service"}
    assert {span["duration_ns"] for span in spans} == {5_000_000}
    assert [span["status"] for span in spans].index("error") == 7
    assert json.loads(spans[1]["attributes"]) == {"services": ["frontend_service", "geo_service"]}
    frame = recording.wide(step_s=1)
    traces = frame[("geo_service", "traces_per_second")].dropna()
    assert traces.tolist() == [1.0] * 10
    # traces of the first second are known at its end
    assert str(traces.index[0]) == "2025-08-20 11:31:05+00:00"
    assert frame[("frontend_service", "trace_duration_mean_seconds")].dropna().tolist() == pytest.approx([0.005] * 10)


def test_injections_are_incidents_that_may_overlap(root: Path, tmp_path: Path) -> None:
    import_dataset("uview", root, tmp_path / "out", workers=1)
    (recording,) = open_dataset(tmp_path / "out").recordings()
    incidents = recording.incidents()

    assert incidents["target"].tolist() == ["geo_service", "frontend_service"]
    assert ((incidents["start_ns"] - recording.start_ns) / 1e9).tolist() == [3.0, 4.0]
    assert incidents["duration_s"].tolist() == [2.0, 2.0]
    assert set(incidents["fault"]) == {"anomaly"}


def test_a_sample_of_the_traces_is_read_if_chosen_and_recorded(root: Path, tmp_path: Path) -> None:
    import_dataset("uview", root, tmp_path / "out", workers=1, input_file=SAMPLE)
    (recording,) = open_dataset(tmp_path / "out").recordings()

    assert len(recording.table("spans")) == 10
    assert recording.context.sampling.traces == 0.5


def test_injections_outside_the_traces_are_left_out_and_reported(root: Path, tmp_path: Path) -> None:
    with (root / "faults.csv").open("a") as file:
        file.write("2025-08-20 12:00:00+0000,2025-08-20 12:00:30+0000,geo_service_container\n")
    import_dataset("uview", root, tmp_path / "out", workers=1)

    assert len(open_dataset(tmp_path / "out").recordings()[0].incidents()) == 2
    problems = [issue.problem for issue in examine(root).data_issues]
    assert any(problem.startswith("1 of 3 faults start outside the traces") for problem in problems)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2025-08-20 11:31:07+0000,2025-08-20 11:31:07+0000,geo_service_container", "row 3 of .* a later end"),
        (
            "2025-08-20 11:31:07+0000,2025-08-20 11:31:09+0000,cart_service_container",
            "row 3 of .* of the traces",
        ),
        ("soon,2025-08-20 11:31:09+0000,geo_service_container", 'row 3 of .* is "soon, 2025'),
    ],
)
def test_wrong_injections_are_refused_with_one_sentence(row: str, message: str, root: Path, tmp_path: Path) -> None:
    with (root / "faults.csv").open("a") as file:
        file.write(f"{row}\n")

    with pytest.raises(DataError, match=f"{message}.*; correct the file"):
        import_dataset("uview", root, tmp_path / "out", workers=1)


def test_truncated_traces_are_refused_with_one_sentence(root: Path, tmp_path: Path) -> None:
    file = root / "traces" / FULL
    file.write_bytes(file.read_bytes()[:-20])

    with pytest.raises(DataError, match=r"must have rows of trace_id, .*, but cannot be read .*; restore"):
        import_dataset("uview", root, tmp_path / "out", workers=1)
