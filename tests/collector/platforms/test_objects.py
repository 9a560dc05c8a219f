"""Recorded object states, quantities and timestamps."""

from __future__ import annotations

import json

import pytest

from faultset.collector.platforms.objects import rfc3339_ns
from faultset.datasets.telemetry_formats.kubernetes_objects import parse_rfc3339_ns, quantity

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


@pytest.mark.parametrize(
    ("text", "value"), [("250m", 0.25), ("2", 2.0), ("64Mi", 67_108_864.0), ("1Gi", 2.0**30), ("5k", 5000.0), (3, 3.0)]
)
def test_quantities_are_read_as_kubernetes_does(text, value):
    assert quantity(text) == value


def test_a_wrong_quantity_is_refused():
    with pytest.raises(ValueError, match="'a lot' is not a Kubernetes quantity"):
        quantity("a lot")


@pytest.mark.parametrize("time_ns", [0, 1_700_000_000_123_456_789, 951_782_400 * SECOND, 4_102_444_799_999_999_999])
def test_stamps_survive_a_round_trip(time_ns):
    assert parse_rfc3339_ns(rfc3339_ns(time_ns)) == time_ns
