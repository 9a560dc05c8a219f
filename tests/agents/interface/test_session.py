from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultset.agents.interface.session import compose_complaint
from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS
from faultset.datasets import open_dataset


def test_an_answer_ends_the_session(session) -> None:
    one = session("localization")
    assert one.call("submit_localization", {"services": ["geo"]}).status == "ok"
    assert one.answer == {"services": ["geo"], "ordered": True}
    assert one.call("list_events").status == "refused"
    assert one.report()["tool_calls"] == 1


def test_a_name_that_is_no_candidate_can_be_corrected_once(session) -> None:
    one = session("localization")
    answer = one.call("submit_localization", {"services": ["geoo"]})
    assert answer.status == "invalid"
    assert "mongodb-geo" in answer.text
    assert one.call("submit_localization", {"services": ["other"]}).status == "ok"
    assert (one.retries, one.answer["services"]) == (1, ["other"])


@pytest.mark.parametrize(
    ("task", "tool", "arguments", "answer"),
    [
        ("detection", "submit_detection", {"fault": False}, {"fault": False}),
        ("diagnosis", "submit_rca", {"system_level": "Application", "fault_type": "Misconfiguration"}, None),
        ("all", "submit_all", {"fault": False, "services": [], "system_level": None, "fault_type": None}, None),
    ],
)
def test_every_task_has_one_submission(session, task, tool, arguments, answer) -> None:
    one = session(task)
    assert [name for name in one.tools.tools if name.startswith("submit")] == [tool]
    assert one.call(tool, arguments).status == "ok"
    assert one.answer == (answer or one.answer | arguments)


def test_a_word_outside_the_vocabulary_gets_the_vocabulary(session) -> None:
    answer = session("diagnosis").call("submit_rca", {"system_level": "Cosmic", "fault_type": "Misconfiguration"})
    assert answer.status == "invalid"
    assert "virtualization" in answer.text


def test_an_unknown_task_is_refused(session) -> None:
    with pytest.raises(UsageError, match="the task must be one of"):
        session("mitigation")


def test_tools_are_described_by_json_schemas_and_bad_json_is_answered(session) -> None:
    one = session("detection")
    schemas = one.tools.schemas()
    json.dumps(schemas)
    assert {schema["name"] for schema in schemas} == set(one.tools.tools)
    assert one.call("get_logs", "{not json").text.startswith("Invalid:")
    assert one.call("describe_system").text.startswith("application: hotel")


def test_an_answer_that_names_no_candidate_is_reported_as_invalid_with_its_moment(session) -> None:
    one = session("localization")
    for _ in range(2):
        one.call("submit_localization", {"services": ["nobody"]})
    report = one.report()
    assert (report["status"], report["status_reason"]) == ("invalid", "no service in the answer is a candidate")
    assert report["answered_ns"] == one.tools.clock.now_ns


SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


@pytest.mark.parametrize(
    ("episode", "complaint"),
    [
        ("01084746c57a", "since about 02:10 UTC, GET /recommendations often fails"),
        ("252926d80e7a", "since about 02:15 UTC, GET /hotels is slow"),
        ("0d3c530732fb", "since about 02:15 UTC, something seems to be wrong"),
    ],
)
def test_a_complaint_has_an_approximate_time_and_what_clients_saw(episode: str, complaint: str) -> None:
    opened = open_dataset(SAMPLE)[episode]
    onset_ns = opened.label.onset_ns or opened.context.reference_end_ns
    assert compose_complaint(opened.view, onset_ns + 20 * SECOND_NS) == complaint
