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


def test_only_a_digest_of_a_config_map_is_shown(bench):
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "very secret"}}
    bench.apply(made)
    bench.patch("ConfigMap", "c", {"data": {"key": "other"}})
    states = [json.loads(seen.state) for seen in bench.cluster.changes.observations if seen.kind == "ConfigMap"]
    assert [set(state) for state in states] == [{"digest"}, {"digest"}]
    assert states[0] != states[1]
