"""ReplicaSets keep the pods that their selector finds."""

from __future__ import annotations


def relabel(bench, name, label):
    bench.patch("Pod", name, {"metadata": {"labels": {"app": label}}})


def test_a_pod_that_loses_its_label_is_let_go_and_replaced(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    old = bench.name("geo")
    (label,) = {bench.pod("geo")["metadata"]["labels"]["app"]}
    relabel(bench, old, "nobody")
    assert bench.store.get("Pod", old)["metadata"].get("ownerReferences") in (None, [])
    new = bench.store.list("Pod", {"app": label})
    assert len(new) == 1
    assert new[0]["metadata"]["name"] != old
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert len(subset["addresses"]) == 1


def test_a_pod_that_gets_its_label_back_is_taken_in_and_one_too_many_goes(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    old = bench.name("geo")
    label = bench.pod("geo")["metadata"]["labels"]["app"]
    relabel(bench, old, "nobody")
    relabel(bench, old, label)
    assert len(bench.store.list("Pod", {"app": label})) == 1
    assert bench.messages("SuccessfulDelete")
