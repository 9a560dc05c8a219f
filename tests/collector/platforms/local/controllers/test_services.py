"""Addresses and endpoints of Services."""

from __future__ import annotations


def test_every_service_and_pod_has_an_address_of_its_own(bench, manifest):
    for name in ("geo", "rate"):
        bench.apply(manifest.deployment(name), manifest.service(name))
    services = {bench.store.get("Service", name)["spec"]["clusterIP"] for name in ("geo", "rate")}
    pods = {bench.pod(name)["status"]["podIP"] for name in ("geo", "rate")}
    assert len(services) == len(pods) == 2


def test_endpoints_follow_the_target_port(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo", 8083))
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert [port["port"] for port in subset["ports"]] == [8083]
    bench.patch("Service", "geo", {"spec": {"ports": [{"port": 8083, "targetPort": 9999}]}})
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert [port["port"] for port in subset["ports"]] == [9999]
    assert [found["targetRef"]["name"] for found in subset["addresses"]] == [bench.name("geo")]


def test_a_named_target_port_is_looked_up_in_the_pod(bench, manifest):
    ports = [{"name": "http", "containerPort": 8083}]
    bench.apply(manifest.deployment("geo", container={"ports": ports}), manifest.service("geo", 80, "http"))
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert subset["ports"][0]["port"] == 8083


def test_a_selector_that_matches_nothing_leaves_no_endpoints(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    bench.patch("Service", "geo", {"spec": {"selector": {"other": "label"}}})
    assert bench.store.get("Endpoints", "geo")["subsets"] == []


def test_a_deleted_service_takes_its_endpoints_along(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    bench.delete("Service", "geo")
    assert bench.store.list("Endpoints") == []
