"""The page of a recording: counts per step over chunks, incidents, decoys and alarms."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from faultset.datasets.dataset import open_dataset
from faultset.datasets.explorer import content as content_module
from faultset.datasets.explorer.content import content_json, recording_content
from faultset.datasets.explorer.page import write_page
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings import Recording
from tests.datasets.recorded_samples import at, context, samples, spans


def test_incidents_decoys_and_voids_are_in_seconds(recording: Recording[Any]) -> None:
    content = recording_content(recording, truth=True)
    assert content["seconds"] == 3600
    assert content["segments"] == [[0, 1800], [2400, 3600]]
    assert [one["span"] for one in content["truth"]["incidents"]] == [[500, 810], [1000, 1130], [2500, 2710]]
    assert content["truth"]["decoys"] == [{"name": "restart of front", "time": 700}]
    assert [one["span"] for one in content["truth"]["voids"]] == [[2650, 2700]]
    content_json(content)


def test_the_truth_is_left_out(recording: Recording[Any]) -> None:
    text = content_json(recording_content(recording, truth=False))
    assert "memory-leak" not in text
    assert "restart" not in text


def test_alarms_of_a_method_are_one_lane(recording: Recording[Any]) -> None:
    rows = [{"method": "zscore", "alarm_ns": at(60)}, {"method": "zscore", "alarm_ns": at(30)}]
    rows += [{"method": "silent", "alarm_ns": None}]
    content = recording_content(recording, truth=False, answers={"r1": rows})
    assert content["answers"] == [{"name": "silent", "alarms": []}, {"name": "zscore", "alarms": [30, 60]}]


def test_calls_are_counted_over_the_ends_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "MAX_RECORDING_STEPS", 40)
    writer = RecordingWriter(tmp_path, context())
    for number in (0, 1):
        calls = spans([(number * 600 + second, 0.5 + second / 100) for second in (1, 2, 40)]).to_pandas()
        calls["kind"], calls["service"], calls["peer_service"] = "client", "front", "geo"
        import pyarrow as pa

        writer.append(at(number * 600), at((number + 1) * 600), {"spans": [pa.Table.from_pandas(calls)]})
    create_version(tmp_path, provenance={})
    content = recording_content(open_dataset(tmp_path).recording("r1"), truth=False)
    assert content["step"] == 30
    (geo,) = content["services"]
    assert [index for index, count in enumerate(geo["calls"]) if count] == [0, 1, 20, 21]
    assert [count for count in geo["calls"] if count] == [2, 1, 2, 1]
    assert geo["ms"][1] == 900
    assert content["metrics"] == []


def test_a_recording_of_metrics_shows_them(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, context())
    writer.append(at(0), at(600), {"metrics": [samples(0, 600)]})
    create_version(tmp_path, provenance={})
    content = recording_content(open_dataset(tmp_path).recording("r1"), truth=True)
    assert [lane["name"] for lane in content["metrics"]] == ["geo level", "geo requests_total"]
    assert content["clients"] is None


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_the_timeline_of_a_recording(recorded_root: Path, tmp_path: Path) -> None:
    write_page(open_dataset(recorded_root), tmp_path / "page.html")
    profile = f"--user-data-dir={tmp_path}/profile"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", profile, "--virtual-time-budget=10000"]
    shown = subprocess.run(
        [*command, "--dump-dom", (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=60
    ).stdout
    assert 'data-ready="r1"' in shown
    assert "Whole recording" in shown
    assert shown.count("memory-leak on geo, manifest") == 3
