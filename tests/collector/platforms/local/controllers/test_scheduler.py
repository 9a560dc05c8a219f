"""Pods wait until a node can take them."""

from __future__ import annotations

SELECTOR = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-77"}}}}}


def test_a_pod_for_an_unknown_node_stays_pending_and_says_why(bench, manifest):
    bench.apply(manifest.deployment("geo", strategy={"type": "Recreate"}))
    bench.patch("Deployment", "geo", SELECTOR)
    pod = bench.pod("geo")
    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]
    (message,) = bench.messages("FailedScheduling")
    assert message.startswith(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption:"
    )


def test_scheduling_is_tried_again_at_growing_intervals(bench, manifest):
    bench.apply(manifest.deployment("geo", pod={"nodeSelector": {"kubernetes.io/hostname": "moon"}}))
    start = bench.now
    bench.advance(400)
    seen = [found for found in bench.cluster.events.occurrences if found.reason == "FailedScheduling"]
    assert [(found.time_ns - start) // 10**9 for found in seen] == [0, 30, 90, 210]
    assert [found.count for found in seen] == [1, 2, 3, 4]


def test_the_pod_runs_as_soon_as_the_selector_is_gone(bench, manifest):
    bench.apply(manifest.deployment("geo", strategy={"type": "Recreate"}))
    bench.patch("Deployment", "geo", SELECTOR)
    bench.patch("Deployment", "geo", {"spec": {"template": {"spec": {"nodeSelector": None}}}})
    assert bench.pod("geo")["status"]["phase"] == "Running"


def test_a_pod_that_asks_for_more_than_the_node_has_stays_pending(bench, manifest):
    bench.apply(manifest.deployment("geo", container={"resources": {"requests": {"memory": "900Gi"}}}))
    assert bench.pod("geo")["status"]["phase"] == "Pending"
    assert "1 Insufficient memory" in bench.messages("FailedScheduling")[0]
