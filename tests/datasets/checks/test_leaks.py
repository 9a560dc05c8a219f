from __future__ import annotations

import json

import pytest

from faultset.datasets.checks.leaks import journal_secrets, leak_findings
from faultset.datasets.format.labels import read_journal, read_label
from faultset.datasets.views import EpisodeView

STATE = json.dumps({"spec": {"ports": [{"port": 8083, "targetPort": 8083}]}})
SERVICE = {"kind": "Service", "name": "geo", "service": "geo", "time": 1_760_000_000_000_000_000, "state": STATE}


@pytest.fixture
def leaks(write_episode, fault_label, log):
    """Write three harmless episodes and one with a fault, and return what the check finds."""

    def find(*, fault="memory-leak", parameters=None, journal=None, in_all=(), **tables) -> list[str]:
        common = {"logs": [log(1, "served"), *(log(2, text) for text in in_all)], "objects": [SERVICE]}
        paths = [write_episode(f"n{number}", start_ns=1_760_000_000_000_000_000, **common) for number in range(3)]
        label = fault_label(fault, parameters=parameters or {})
        merged = {table: common.get(table, []) + tables.get(table, []) for table in common.keys() | tables.keys()}
        paths.append(write_episode("f0", label=label, journal=journal, **merged))
        views = {path.name: EpisodeView(path) for path in paths}
        labels = {path.name: read_label(path) for path in paths}
        journals = {path.name: read_journal(path) for path in paths}
        return [str(finding) for finding in leak_findings(views, labels, journals)]

    return find


def test_harmless_views_pass(leaks):
    assert leaks() == []


@pytest.mark.parametrize(
    "text",
    [
        "starting memory-leak now",
        "memory_leak=1",
        "com.memory.leak",
        "memoryLeak",
        "MemoryLeak",
        "MEMORY_LEAK",
        "xmemoryleakx",
    ],
)
def test_the_faults_name_is_found_however_its_words_are_joined(leaks, log, text):
    (finding,) = leaks(logs=[log(50, text)])
    assert (
        'error leak: episodes/f0/telemetry/logs.parquet: column message contains the name of a fault, "memory-leak"'
        in (finding)
    )
    assert text in finding


@pytest.mark.parametrize("text", ["memory is leaking", "the memory. leak none", "leak memory"])
def test_other_uses_of_its_words_pass(leaks, log, text):
    assert leaks(logs=[log(50, text)]) == []


@pytest.mark.parametrize("text", ["ChaosMesh", "injected latency", "pod faultset-agent-x", "stress-ng --cpu 1"])
def test_words_of_an_injector_are_found(leaks, log, text):
    assert any("a word of the injector" in finding for finding in leaks(logs=[log(50, text)]))


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("metrics", {"metric": "up", "labels": '{"job":"memory-leak"}', "kind": "gauge", "value": 1.0}),
        ("metrics", {"metric": "memory_leak_bytes", "labels": "{}", "kind": "gauge", "value": 1.0}),
        (
            "events",
            {"type": "Normal", "reason": "x", "kind": "Pod", "name": "memory-leak-1", "message": "m", "count": 1},
        ),
        ("objects", {"kind": "Pod", "name": "geo", "state": '{"image":"app:memory-leak"}'}),
        ("requests", {"endpoint": "/memory-leak", "outcome": "ok"}),
        (
            "spans",
            {
                "trace_id": "1",
                "span_id": "2",
                "reported_service": "geo",
                "operation": "o",
                "kind": "server",
                "duration_ns": 1,
                "status": "ok",
                "attributes": '{"x":"memory.leak"}',
            },
        ),
    ],
)
def test_every_table_is_searched(leaks, table, row):
    at = 1_760_000_050_000_000_000
    rows = [row | ({"scheduled": at} if table == "requests" else {"time": at})]
    assert len(leaks(**{table: rows})) == 1


def test_a_name_that_every_view_has_anyway_tells_nothing(leaks):
    assert leaks(in_all=["library memory-leak-detector loaded"]) == []


def test_field_names_of_a_state_are_not_the_faults_name(write_episode, fault_label):
    path = write_episode("f0", label=fault_label("target-port"), objects=[SERVICE])
    found = leak_findings({"f0": EpisodeView(path)}, {"f0": read_label(path)}, {"f0": []})
    assert found == []


def test_a_single_word_fault_is_not_found_inside_other_words(leaks, log):
    assert leaks(fault="loss", logs=[log(50, "glossary")]) == []


def test_a_single_word_fault_is_found_as_a_word(leaks, log):
    assert len(leaks(fault="loss", logs=[log(50, "begin: Loss")])) == 1


def test_what_only_the_journal_knows_is_found(leaks, log):
    journal = [{"seq": 1, "verb": "exec", "args": {"argv": ["deluser", "mongo-x7f3"]}, "state": "intent"}]
    (finding,) = leaks(journal=journal, logs=[log(50, "no such user mongo-x7f3")])
    assert '"mongo-x7f3"' in finding


def test_in_an_episode_alone_what_the_journal_knows_is_in_doubt_and_the_faults_name_is_not(
    write_episode, fault_label, log
):
    journal = [{"seq": 1, "state": "intent", "verb": "patch", "inverse": {"image": "shop/app:1.0.0"}}]
    lines = [log(1, "runs shop/app:1.0.0"), log(2, "memory-leak begins")]
    path = write_episode("f0", label=fault_label("memory-leak"), journal=journal, logs=lines)
    found = leak_findings({"f0": EpisodeView(path)}, {"f0": read_label(path)}, {"f0": read_journal(path)})
    assert {(one.severity, "no episode with another fault" in str(one)) for one in found} == {
        ("warning", True),
        ("error", False),
    }


def test_what_the_change_shows_to_an_operator_is_allowed(leaks, log):
    journal = [
        {
            "seq": 1,
            "verb": "exec",
            "args": {"argv": ["deluser", "mongo-x7f3"]},
            "visible": ["user mongo-x7f3 not found"],
        }
    ]
    assert leaks(journal=journal, logs=[log(50, "no such user mongo-x7f3")]) == []


def test_names_that_telemetry_lists_anyway_are_allowed(leaks, log):
    journal = [{"seq": 1, "verb": "kill", "args": {"pod": "geo-1", "kind": "Pod"}, "inverse": [{"service": "front"}]}]
    assert leaks(journal=journal, logs=[log(50, "geo-1 called front")]) == []


def test_other_episodes_of_the_same_application_say_what_is_vocabulary(write_episode, fault_label, log) -> None:
    lines = {"social": [log(1, "read from 0, stop at 10")], "hotel": [log(1, "served")]}

    def findings(app: str) -> list[str]:
        paths = [write_episode(f"{app}-{one}{n}", app=one, logs=lines[one]) for one in lines for n in range(6)]
        label = fault_label("consumer-stopped", parameters={"do": "stop"})
        paths.append(write_episode(f"fault-{app}", app=app, label=label, logs=lines["social"]))
        views = {path.name: EpisodeView(path) for path in paths}
        labels = {path.name: read_label(path) for path in paths}
        found = leak_findings(views, labels, {path.name: read_journal(path) for path in paths})
        return [finding.episode or "" for finding in found]

    assert findings("social") == []
    assert findings("hotel") == ["fault-hotel"]


def test_parameters_are_found_as_whole_numbers(leaks, log):
    assert len(leaks(parameters={"port": 31337}, logs=[log(50, "dial 127.0.0.1:31337 refused")])) == 1


def test_parts_of_other_numbers_are_no_leak(leaks, log):
    assert leaks(parameters={"port": 31337}, logs=[log(50, "took 9313371 ns")]) == []


def test_a_number_among_many_in_the_same_place_tells_nothing(leaks, log):
    accounts = [log(second, f"read account {1000 + second} in 3 ms") for second in range(40)]
    assert leaks(parameters={"off_ms": 1031}, logs=accounts) == []


@pytest.mark.parametrize("text", ["waiting 1031 ms for a lock", "read account 7 in 1031 ms"])
def test_a_number_in_a_place_that_has_few_is_found_beside_texts_with_many(leaks, log, text):
    accounts = [log(second, f"read account {1000 + second} in 3 ms") for second in range(20)]
    assert len(leaks(parameters={"off_ms": 1031}, logs=[*accounts, log(45, text)])) == 1


def test_journals_with_missing_fields_and_odd_values_are_survived():
    journal = [{}, {"seq": 1}, {"args": None, "visible": None}, {"args": "plain-text-1", "inverse": [1.25, [True]]}]
    assert journal_secrets(journal, {"share": 0.5, "delay": 0.34721, "on": True}) == {"plain-text-1", "0.34721"}


def test_texts_with_special_characters_are_searched_literally(leaks, log):
    journal = [{"args": {"argv": ["a(b)*[c] $x\n{1}", "100%.é\\d"]}}]
    assert leaks(journal=journal, logs=[log(50, "aab c x")]) == []


def test_lines_of_a_journal_that_a_crash_tore_are_left_out(write_episode):
    path = write_episode("e1")
    (path / "truth" / "journal.jsonl").write_text('{"seq":1}\n{"seq":2,"ar\n{"seq":3}\n{"se')
    assert read_journal(path) == [{"seq": 1}, {"seq": 3}]


def settings(at_s: int, text: str) -> dict[str, object]:
    time = 1_760_000_000_000_000_000 + at_s * 1_000_000_000
    return SERVICE | {"kind": "ConfigMap", "name": "settings", "time": time, "data": json.dumps({"flags": text})}


def test_the_texts_of_config_maps_are_searched(leaks):
    (finding,) = leaks(objects=[settings(50, "memory-leak=on")])
    assert 'objects.parquet: column data contains the name of a fault, "memory-leak"' in finding


def test_what_a_config_map_named_before_the_injection_is_no_leak(leaks):
    assert leaks(objects=[settings(1, "memory-leak=off"), settings(50, "memory-leak=on")]) == []


def stateful(at_s: int, text: str) -> dict[str, object]:
    time = 1_760_000_000_000_000_000 + at_s * 1_000_000_000
    return SERVICE | {"time": time, "state": json.dumps({"spec": {"storageClassName": text}})}


UNDONE = {
    "seq": 1,
    "state": "intent",
    "args": {"storageClassName": "none-such"},
    "inverse": [{"storageClassName": "usual-storage-48239"}],
    "visible": ["none-such"],
}


def test_what_an_undo_goes_back_to_is_no_leak_where_the_object_had_it_before(leaks):
    assert leaks(journal=[UNDONE], objects=[stateful(1, "usual-storage-48239"), stateful(50, "none-such")]) == []


def test_what_an_undo_goes_back_to_is_a_leak_where_nothing_showed_it_before(leaks):
    (finding,) = leaks(journal=[UNDONE], objects=[stateful(50, "usual-storage-48239")])
    assert "column state contains a text or number from the journal" in finding


def test_the_faults_name_in_the_state_of_an_object_is_a_leak_at_any_time(leaks):
    assert any("the name of a fault" in one for one in leaks(objects=[stateful(1, "memory-leak")]))


def test_a_word_of_the_injector_in_a_config_map_is_a_leak_at_any_time(leaks):
    assert any("a word of the injector" in one for one in leaks(objects=[settings(1, "chaos: none")]))
