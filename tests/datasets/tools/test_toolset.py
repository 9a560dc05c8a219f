from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from faultset.datasets import Dataset, Episode, EpisodeContext, EpisodeWriter, create_version, open_dataset
from faultset.datasets.examples import Scenario, evidence_of, label_of
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.tools.toolset import TOOL_NAMES, EpisodeTools

from .conftest import POD_FAILURE

GOOD = {
    "get_object": {"kind": "Deployment", "name": "geo"},
    "list_objects": {"kind": "pods"},
    "get_metric": {"metric": "container_cpu_usage_seconds_total", "service": "geo"},
    "get_trace": {"trace_id": "0"},
    "query": {"sql": "select count(*) from logs"},
    "kubectl": {"command": "kubectl get pods"},
    "wait": {"seconds": 5},
}


def test_every_tool_answers_and_is_counted(tools: EpisodeTools) -> None:
    assert set(tools.tools) == set(TOOL_NAMES)
    for name in tools.tools:
        answer = tools.call(name, GOOD.get(name))
        assert answer.status in ("ok", "absent"), (name, answer.text)
        assert answer.text.endswith("[2026-11-22T02:11:57Z]")
    assert sum(tools.counts.values()) == sum(tools.calls.values()) == len(TOOL_NAMES)
    tools.call("kubectl", GOOD["kubectl"])
    assert tools.repeats == 1


def test_every_tool_has_a_json_schema_that_says_what_it_takes(tools: EpisodeTools) -> None:
    for tool in tools.tools.values():
        schema = tool.parameters
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert tool.description
        assert all("description" in field for field in schema.get("properties", {}).values())
        json.dumps(schema)


def test_tools_that_do_an_algorithm_s_work_can_be_left_out(sample: Dataset) -> None:
    assert "compare_metrics" not in sample[POD_FAILURE].tools(algorithms=False).tools


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nothing", {}, "unknown tool"),
        ("get_logs", "{", "not JSON"),
        ("get_logs", "[1]", "JSON object"),
        ("get_logs", {"limit": 0}, "limit"),
        ("get_logs", {"colour": 1}, "colour"),
        ("get_logs", {"level": "loud"}, "the level must be one of"),
        ("get_metric", {}, "metric"),
        ("wait", {"seconds": -1}, "seconds"),
    ],
)
def test_arguments_that_are_wrong_get_a_sentence(
    tools: EpisodeTools, name: str, arguments: dict | str, words: str
) -> None:
    answer = tools.call(name, arguments)
    assert answer.status == "invalid"
    assert words in answer.text
    assert answer.text.startswith("Invalid: ")


def test_the_four_negative_answers_are_told_apart(tools: EpisodeTools) -> None:
    assert tools.call("get_logs", {"service": "mongodb-geo"}).text.startswith("No rows:")
    assert 'did you mean "geo"' in tools.call("get_logs", {"service": "geoo"}).text
    assert "says nothing about the system" in tools.call("list_objects", {"kind": "nodes"}).text
    assert tools.call("kubectl", {"command": "kubectl delete pod geo"}).text.startswith("Refused:")
    assert dict(tools.counts) == {"empty": 1, "absent": 1, "not_recorded": 1, "refused": 1}


@pytest.fixture
def bare_episode(tmp_path: Path) -> Episode:
    """An imported episode none of whose tables has a row."""
    import numpy as np

    scenario = Scenario(0, np.random.default_rng(0), 20, 20)
    with EpisodeWriter(tmp_path, scenario.id) as writer:
        for table in TABLES:
            writer.write_table(table, [])
        writer.write_context(
            EpisodeContext(
                episode=scenario.id, app="bare", platform="imported", view_start_ns=scenario.start,
                view_end_ns=scenario.end, reference_end_ns=scenario.reference_end,
                source_intervals_s=dict.fromkeys(TABLES), services=("a", "b"), calls=(("a", "b"),), workload_entry="a",
            )
        )  # fmt: skip
        writer.write_truth(label_of(scenario), evidence_of(scenario), None)
        writer.commit()
    create_version(tmp_path, provenance={})
    return open_dataset(tmp_path)[scenario.id]


def test_no_tool_says_that_there_is_nothing_where_nothing_was_recorded(bare_episode: Episode) -> None:
    tools = bare_episode.tools()
    for name in tools.tools:
        if name not in ("describe_system", "wait"):
            answer = tools.call(name, GOOD.get(name, {}))
            assert answer.status == "not_recorded", (name, answer.text)
    for command in ("get pods", "describe deploy a", "logs a", "top pods", "events", "get events", "logs deploy/a"):
        assert tools.call("kubectl", {"command": f"kubectl {command}"}).status == "not_recorded", command


def test_a_tool_names_its_own_table_as_the_one_that_was_not_recorded(bare_episode: Episode) -> None:
    tools = bare_episode.tools()
    tables = {"get_logs": "log lines", "list_metrics": "metrics", "get_spans": "spans", "list_events": "events"}
    for name, rows in tables.items():
        assert f"this recording has no {rows}." in tools.call(name, GOOD.get(name, {})).text


def test_kinds_of_log_lines_are_counted_before_and_after_the_reference(tools: EpisodeTools) -> None:
    header, first, *_ = tools.call("log_patterns", {"service": "geo"}).text.split("\n")
    assert header.split() == ["REFERENCE/MIN", "AFTER/MIN", "SERVICE", "LEVEL", "PATTERN"]
    assert first.split()[:4] == ["285.0", "63.3", "geo", "trace"]
    assert "trace_id=<*>" in first


def test_a_long_answer_is_cut_and_says_so(tools: EpisodeTools) -> None:
    answer = tools.call("get_logs", {"limit": 1000})
    assert len(answer.text) < 31_000
    assert "more characters are omitted" in answer.text


def test_no_answer_names_the_episode_a_file_or_the_fault(tools: EpisodeTools) -> None:
    for name in tools.tools:
        text = tools.call(name, GOOD.get(name)).text
        assert POD_FAILURE not in text
        assert "parquet" not in text
        assert "datasets/" not in text


_HOSTILE = (
    "kubectl get pods -o jsonpath={",
    "kubectl get pods | grep (", "$(reboot)", "kubectl logs x; reboot", "kubectl get `id`",
    "kubectl get pods | xargs rm", "kubectl get pods > /tmp/x", "kubectl get --raw /api", "kubectl cp a:/etc/passwd .",
    "kubectl get pods -o go-template-file=/etc/passwd", "kubectl get -f /etc/passwd",
    "kubectl get pods -o jsonpath-file=/x",
    "select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'", "copy logs to '/tmp/x'", "attach '/tmp/y'",
    "select * from duckdb_settings()", "install httpfs", "select 1; select 2", "create table x as select 1",
    "select count(*) from range(100000000) a, range(100000) b", "select getenv('HOME')", "pragma database_list",
    "../../truth/label.parquet", "\x00", "\ud800",
    "'", '"', "a" * 5000, "-" * 300, "{}" * 200, "%s%n", "1e999", "null", "",
)  # fmt: skip


def test_no_input_starts_a_process_leaves_the_view_or_gets_a_traceback(
    tools: EpisodeTools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise AssertionError("a process was started")

    for name in ("subprocess.Popen", "os.system", "os.fork", "os.execv", "os.posix_spawn"):
        monkeypatch.setattr(name, fail)
    monkeypatch.setattr("faultset.datasets.tools.sql._TIMEOUT_S", 0.2)
    drawn = random.Random(7)
    words = ["kubectl", "get", "logs", "describe", "top", "pods", "geo", "-o", "-n", "hotel", "|", "grep", "-c", "wide",
             "--tail", "--since", "5m", "yaml", "-l", "a=b", "--previous", "sort", "awk", "{print $1}", "svc", "-A",
             "events"]  # fmt: skip
    commands = [*_HOSTILE, *(" ".join(drawn.choices(words, k=drawn.randint(1, 7))) for _ in range(80))]
    for text in commands:
        for name, argument in (("kubectl", "command"), ("query", "sql"), ("get_trace", "trace_id")):
            if name == "kubectl" or text in _HOSTILE:
                answer = tools.call(name, {argument: text})
                assert "Traceback" not in answer.text
                assert "root:" not in answer.text
                assert "failed on these arguments" not in answer.text, (name, text)
    values = [None, True, -1, 0, 1e308, "", "geo", [], {}, float("nan"), "\ud800", 10**30]
    for tool in tools.tools.values():
        for value in values:
            arguments = dict.fromkeys(tool.parameters.get("properties", {}), value)
            assert "failed on these arguments" not in tools.call(tool.name, arguments).text, (tool.name, value)
        for text in ("", "null", "[" * 100_000, '{"limit": 1e999}', "\ud800"):
            assert "failed on these arguments" not in tools.call(tool.name, text).text
    assert not [record for record in caplog.records if record.exc_info]
