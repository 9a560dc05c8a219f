"""What an import of telemetry reports: clocks that differ, the doctor's list, and data folders of Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.cli.exchange import show_report
from faultset.datasets.imports.telemetry.reports import TelemetryReport
from faultset.datasets.imports.telemetry.run import examine_telemetry

T = 1_760_000_000
MS = 1_000_000


def write_calls(path: Path, shift_ms: float, *, calls: int = 40, kind: int = 2, hosts: bool = False) -> None:
    """Write calls of 50 ms from web to cart, whose clock differs by `shift_ms`; cart takes 10 ms in the middle."""
    lines = []
    for number in range(calls):
        start = (T + number) * 10**9
        for place, (service, first, last) in enumerate((("web", 0.0, 50.0), ("cart", 20 + shift_ms, 30 + shift_ms))):
            facts = {"service.name": service} | ({"host.name": f"node-{place}"} if hosts else {})
            span = {
                "traceId": f"{number + 1:032x}",
                "spanId": f"{2 * number + place + 1:016x}",
                "parentSpanId": f"{2 * number + 1:016x}" if place else "",
                "name": "GET",
                "kind": kind,
                "startTimeUnixNano": str(start + round(first * MS)),
                "endTimeUnixNano": str(start + round(last * MS)),
            }
            attributes = [{"key": key, "value": {"stringValue": text}} for key, text in facts.items()]
            resource = {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]}
            lines.append(json.dumps({"resourceSpans": [resource]}))
    path.write_text("\n".join(lines) + "\n")


def reported(path: Path, tmp_path: Path) -> TelemetryReport:
    return examine_telemetry([path], folder=tmp_path / "stage")


@pytest.mark.parametrize(
    ("shift_ms", "sentence"),
    [
        (
            -200,
            "the clock of cart is behind the clock of web by 180 ms or more: 40 of 40 calls start before their caller",
        ),
        (
            -5000,
            "the clock of cart is behind the clock of web by 4,980 ms or more: 40 of 40 calls start before their",
        ),
        (
            500,
            "the clock of cart is ahead of the clock of web by 480 ms or more: 40 of 40 calls end after their caller",
        ),
    ],
)
def test_a_clock_that_differs_is_reported_with_figures(shift_ms: float, sentence: str, tmp_path: Path) -> None:
    write_calls(tmp_path / "traces.jsonl", shift_ms)
    (issue,) = reported(tmp_path / "traces.jsonl", tmp_path).issues

    assert issue.startswith(sentence)
    assert issue.endswith("times are not corrected")


def test_hosts_are_named_if_spans_do(tmp_path: Path) -> None:
    write_calls(tmp_path / "traces.jsonl", -200, hosts=True)

    assert (
        reported(tmp_path / "traces.jsonl", tmp_path)
        .issues[0]
        .startswith("the clock of node-1 is behind the clock of node-0")
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"shift_ms": 10.0},
        {"shift_ms": -20.5},
        {"shift_ms": -200.0, "calls": 10},
        {"shift_ms": 500.0, "kind": 5},
    ],
    ids=["within the caller", "below a millisecond", "few calls", "messages"],
)
def test_clocks_are_not_blamed_without_evidence(facts: dict[str, float], tmp_path: Path) -> None:
    write_calls(tmp_path / "traces.jsonl", **facts)  # type: ignore[arg-type]

    assert not reported(tmp_path / "traces.jsonl", tmp_path).issues


def test_the_doctor_lists_what_an_import_of_own_telemetry_would_do(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    write_calls(folder / "traces.jsonl", 0)
    (folder / "top.txt").write_text("NAME   CPU(cores)   MEMORY(bytes)\nweb   1m   3Mi\n")
    (folder / "app.log").write_text("2025-10-09T08:55:00Z ERROR token=abcdefghijklmnop rejected\n")
    examination = examine(folder)

    assert examination.format == "telemetry"
    assert "of 2 services: cart, web" in examination.summary
    assert "OTLP: 1 file, 80 spans" in examination.summary
    assert examination.next == f"faultset dataset import telemetry {folder} OUT"
    rows = {issue.location: (issue.severity, issue.problem, issue.handling) for issue in examination.data_issues}
    assert rows["top.txt"][0] == "warning"
    assert "kubectl top, which has no times" in rows["top.txt"][1]
    assert rows["app.log"] == ("note", "1 text has secrets.", "The secrets are hidden.")


def write_block(database: Path) -> None:
    block = database / "01HZ8K4M1T0000000000000000"
    (block / "chunks").mkdir(parents=True)
    (block / "chunks/000001").write_bytes(b"\x85\xbd\x40\xdd" + bytes(50))
    (block / "index").write_bytes(b"\xba\xaa\xd7\x00" + bytes(50))
    (block / "meta.json").write_text('{"ulid": "01HZ8K4M1T0000000000000000", "version": 1}')


def write_log_only(database: Path) -> None:
    (database / "wal").mkdir(parents=True)
    (database / "wal/00000000").write_bytes(bytes(60))
    (database / "chunks_head").mkdir()


@pytest.mark.parametrize("write", [write_block, write_log_only])
def test_a_data_folder_of_prometheus_gets_one_sentence_that_says_how_to_read_it(write, tmp_path: Path) -> None:
    database = tmp_path / "prometheus"
    write(database)
    sentence = (
        rf"{database} is a data folder of Prometheus, .*faultset record --prometheus URL.*promtool tsdb dump-openmet"
    )

    with pytest.raises(DataError, match=sentence):
        reported(database, tmp_path)
    with pytest.raises(DataError, match=sentence):
        examine(database)

    write_calls(tmp_path / "traces.jsonl", 0)
    refusals = [file.refusal for file in reported(tmp_path, tmp_path / "other").files if file.refusal]
    assert len([text for text in refusals if "data folder of Prometheus" in text]) == 1


def test_many_copies_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abc":
        write_calls(tmp_path / f"{name}.jsonl", 0)
    show_report(examine_telemetry([tmp_path / f"{name}.jsonl" for name in "abc"], folder=tmp_path / "stage"))
    assert "Refused: 2 files that are copies of others." in capsys.readouterr().err
