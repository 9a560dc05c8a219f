"""What the explorer computes of episodes and recordings."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.datasets.dataset import open_dataset
from faultset.datasets.explorer import content as content_module
from faultset.datasets.explorer.content import content_json, episode_content, recording_content
from faultset.datasets.explorer.health import (
    FAILING,
    MAX_STEPS,
    NO_CALLS,
    OK,
    SILENT,
    SLOW,
    TimeGrid,
    arrange_in_layers,
    client_requests,
    round_values,
    service_map,
    states,
)
from faultset.datasets.explorer.page import write_page
from faultset.datasets.explorer.records import log_lines_by_kind, object_changes, trace_examples
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.recordings import RecordingWriter
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.views import EpisodeView
from tests.datasets.recorded_samples import at, context, samples, spans

SECOND = 10**9
START = 1_760_000_000_000_000_000


def grid_over(context: EpisodeContext) -> TimeGrid:
    return TimeGrid.over(context.view_start_ns, context.view_end_ns, context.sampling_step_s)


def test_a_long_view_gets_few_steps_of_whole_sampling_intervals(write_episode):
    context = EpisodeView(write_episode()).context
    assert grid_over(context).steps == 100
    long = context.__class__(**{**vars(context), "view_end_ns": START + 1441 * SECOND})
    grid = grid_over(long)
    assert (grid.step_s, grid.steps <= MAX_STEPS, grid.steps * grid.step_s >= 1441) == (4.0, True, True)


def test_numbers_keep_four_digits_and_json_gets_no_nan():
    assert round_values(np.array([0.0, 123456.0, 0.000123456, -5.5, np.nan, np.inf])) == [
        0,
        123500,
        0.0001235,
        -5.5,
        None,
        None,
    ]


def test_requests_are_counted_when_they_were_scheduled(write_episode):
    row = {"sent": START, "endpoint": "GET /", "status": 200, "outcome": "ok", "latency_ns": 20_000_000}
    view = EpisodeView(
        write_episode(
            requests=[
                {**row, "scheduled": START},
                {**row, "scheduled": START + SECOND, "outcome": "http_error", "status": 500},
                {**row, "scheduled": START + 50 * SECOND, "outcome": "unfinished", "latency_ns": None, "status": None},
            ]
        )
    )
    found = client_requests(view, grid_over(view.context))
    assert found is not None
    assert (found["ok"][0], found["failed"][1], found["unfinished"][50]) == (1, 1, 1)
    assert sum(found["ok"]) + sum(found["failed"]) + sum(found["unfinished"]) == 3
    assert found["p50"][:3] == [20, 20, None]
    assert found["endpoints"][0]["before"] == {"requests": 2, "failed": 1, "ms": 20}


def test_a_service_is_fine_slow_failing_or_silent():
    calls = np.array([10.0, 10, 10, 10, 10, 10, 0, 0])
    failed = np.array([0.0, 0, 0, 0, 0, 1, 0, 0])
    mean = np.array([5.0, 5, 5, 5, 50, 5, np.nan, np.nan])
    assert states(calls, failed, mean, split=4).tolist() == [OK, OK, OK, OK, SLOW, FAILING, SILENT, SILENT]


def test_a_service_that_pauses_in_the_reference_is_not_silent_after_it():
    calls = np.array([9.0, 0, 0, 9, 9, 0, 0, 9])
    mean = np.where(calls > 0, 5.0, np.nan)
    assert states(calls, calls * 0, mean, split=5).tolist() == [OK, NO_CALLS, NO_CALLS, OK, OK, NO_CALLS, NO_CALLS, OK]


def test_services_are_placed_behind_their_callers_and_circles_end():
    places = arrange_in_layers(["c", "a", "b"], [("a", "b"), ("b", "c"), ("c", "a")], "a")
    assert {name: layer for name, (layer, _) in places.items()} == {"a": 0, "b": 1, "c": 2}


def test_the_map_judges_a_service_by_what_its_callers_saw(write_episode):
    span = {
        "trace_id": "t" * 32,
        "reported_service": "front",
        "operation": "GET",
        "status": "unset",
        "attributes": "{}",
    }
    call = {**span, "service": "front", "peer_service": "geo", "kind": "client", "duration_ns": 5_000_000}
    rows = [{**call, "span_id": f"{n:016x}", "time": START + n * SECOND} for n in range(60)]
    rows += [{**call, "span_id": f"{n:016x}", "time": START + n * SECOND, "status": "error"} for n in range(60, 70)]
    view = EpisodeView(write_episode(spans=rows))
    nodes = {node["name"]: node for node in service_map(view, grid_over(view.context))["nodes"]}
    assert nodes["geo"]["state"][10] == OK
    assert nodes["geo"]["state"][65] == FAILING
    assert nodes["geo"]["state"][90] == SILENT
    assert set(nodes["front"]["state"]) == {NO_CALLS}


def test_log_templates_put_errors_and_what_is_new_first(write_episode):
    line = {"service": "geo", "pod": "geo-1", "container": "geo"}
    logs = [{**line, "time": START + n * SECOND, "level": "info", "message": f"served request {n}"} for n in range(100)]
    logs += [{**line, "time": START + 60 * SECOND, "level": "error", "message": "refused by 10.0.0.7"}]
    logs += [{**line, "time": START + 70 * SECOND, "level": "info", "message": "retrying"}]
    view = EpisodeView(write_episode(logs=logs))
    found = log_lines_by_kind(view, grid_over(view.context))
    assert found is not None
    texts = [template["text"] for template in found["templates"]]
    assert texts == ["refused by <*>.<*>.<*>.<*>", "retrying", "served request <*>"]
    served = found["templates"][2]
    assert (served["lines"], served["before"], sum(served["counts"])) == (100, 40, 100)
    assert [text for _, text in served["examples"]] == ["served request 0", "served request 49", "served request 99"]
    assert found["levels"]["error"][60] == 1


def test_a_trace_whose_parents_form_a_circle_is_drawn_once(write_episode):
    span = {"trace_id": "t" * 32, "reported_service": "geo", "service": "geo", "operation": "x", "kind": "server"}
    span |= {"status": "unset", "attributes": "{}", "duration_ns": 10}
    rows = [{**span, "span_id": a * 16, "parent_span_id": b * 16, "time": START} for a, b in ("ab", "bc", "ca")]
    view = EpisodeView(write_episode(spans=rows))
    found = trace_examples(view, grid_over(view.context))
    assert found is not None
    assert len(found["traces"][0]["spans"]) == 3


def test_object_states_are_compared_field_by_field(write_episode):
    pod = {"kind": "Pod", "name": "geo-1", "service": "geo"}
    before = json.dumps({"containers": [{"name": "geo", "ready": True}], "phase": "Running"})
    after = json.dumps({"containers": [{"name": "geo", "ready": False}], "phase": "Running"})
    rows = [{**pod, "time": START + n * 10 * SECOND, "state": before if n < 5 else after} for n in range(10)]
    view = EpisodeView(write_episode(objects=rows))
    changes = object_changes(view, grid_over(view.context))
    assert [(row["time"], row["what"], row["fields"]) for row in changes] == [
        (50.0, "changed", [["containers.geo.ready", "true", "false"]])
    ]


def test_an_episode_without_telemetry_has_content_too(write_episode):
    dataset_episode = open_dataset_of(write_episode())
    content = json.loads(content_json(episode_content(dataset_episode, truth=True)))
    assert content["clients"] is None
    assert content["traces"] is None
    assert content["truth"]["fault"] is None


def test_without_truth_nothing_of_it_is_in_the_content(example_root):
    dataset = open_dataset(example_root)
    faulty = next(one for one in dataset.episodes if dataset.label(one).fault is not None)
    content = episode_content(dataset[faulty], truth=False)
    assert "truth" not in content
    assert str(dataset.label(faulty).fault) not in content_json(content)


@pytest.mark.parametrize("place", [0, 1])
def test_metrics_are_lines_or_a_single_value_where_nothing_moves(example_root, place):
    dataset = open_dataset(example_root)
    content = episode_content(dataset[dataset.episodes[place]], truth=True)
    lines = [line["values"] for line in content["metrics"]]
    assert lines
    assert all(len(values) == content["steps"] for values in lines if isinstance(values, list))


def open_dataset_of(path):
    from faultset.datasets.dataset import Episode

    return Episode(id=path.name, path=path)


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
