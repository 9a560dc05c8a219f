"""What an operator sees of an object, whenever it changes."""

from __future__ import annotations

import json

SECOND = 1_000_000_000


def test_the_state_of_a_pod_tells_what_an_operator_sees(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    name = bench.name("geo")
    for code in (2, 2):
        bench.end(name, code)
    last = [seen for seen in bench.cluster.changes.observations if seen.name == name][-1]
    state = json.loads(last.state)
    assert (state["phase"], state["node"], state["ready"]) == ("Running", "node-1", False)
    assert state["containers"] == [
        {
            "name": "geo-main",
            "image": "docker.io/faultset/app:1.0.0",
            "ready": False,
            "restartCount": 1,
            "state": "waiting",
            "reason": "CrashLoopBackOff",
            "exitCode": 2,
        }
    ]


def observed(bench, kind):
    return [seen for seen in bench.cluster.changes.observations if seen.kind == kind]


def test_the_texts_of_a_config_map_are_recorded_beside_a_digest_whenever_they_change(bench):
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "one"}})
    bench.patch("ConfigMap", "c", {"data": {"key": "other", "b": "2"}})
    seen = observed(bench, "ConfigMap")
    assert [set(json.loads(one.state)) for one in seen] == [{"digest"}, {"digest"}]
    assert [one.data for one in seen] == ['{"key":"one"}', '{"b":"2","key":"other"}']
    start = seen[0].time_ns
    repeated = [one.data for one in bench.cluster.changes.observe(start, start + 30 * SECOND, 10 * SECOND)]
    assert '{"b":"2","key":"other"}' in repeated[2:]


def test_nothing_of_a_secret_is_recorded_nor_what_a_config_map_has_under_the_name_of_one(bench):
    bench.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "hidden-one"}})
    given = {"DB_PASSWORD": "hidden-two", "api-key": "hidden-three", "authToken": "hidden-four", "user": "geo"}
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": given})
    assert observed(bench, "Secret") == []
    (seen,) = observed(bench, "ConfigMap")
    shown = json.loads(seen.data)
    assert (set(shown.values()), shown["user"]) == ({"<hidden>", "geo"}, "geo")


def test_a_config_map_that_is_too_long_has_a_digest_alone(bench):
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "x" * 300_000}})
    (seen,) = observed(bench, "ConfigMap")
    assert seen.data is None
    assert set(json.loads(seen.state)) == {"digest"}
