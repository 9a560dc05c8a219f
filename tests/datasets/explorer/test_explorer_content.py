"""What the explorer computes of an episode."""

from __future__ import annotations

import json

import numpy as np
import pytest

from faultset.datasets.dataset import open_dataset
from faultset.datasets.explorer.content import content_json, episode_content
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
from faultset.datasets.explorer.records import log_lines_by_kind, object_changes, trace_examples
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.views import EpisodeView

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
