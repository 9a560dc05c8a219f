"""Addresses, routes, host names and state metrics computed from objects."""

from __future__ import annotations

import socket

import pytest

from faultset.collector.platforms.local.messages import RelayTarget
from faultset.collector.platforms.local.routing import (
    AddressBlock,
    build_hosts,
    build_relay_configuration,
    build_scrape_targets,
    build_state_samples,
)
from faultset.core.errors import PlatformError

SCRAPED = {"prometheus.io/scrape": "true", "prometheus.io/port": "9464"}


@pytest.fixture
def addresses():
    block = AddressBlock()
    yield block
    block.release()


def scraped(manifest, name):
    made = manifest.deployment(name)
    made["spec"]["template"]["metadata"]["annotations"] = SCRAPED
    return made


def routes(bench, addresses):
    wanted = build_relay_configuration(bench.store, addresses, {}, 1)
    return {route.name: route for route in wanted.routes}


def test_the_relay_forwards_to_ready_pods(bench, manifest, addresses):
    bench.apply(manifest.deployment("geo", replicas=2), manifest.service("geo", 8083))
    route = routes(bench, addresses)["geo:8083"]
    assert route.port == 8083
    assert {target.pod for target in route.targets} == {pod["metadata"]["name"] for pod in bench.pods("geo")}
    bench.patch("Service", "geo", {"spec": {"ports": [{"port": 8083, "targetPort": 9999}]}})
    assert {target.port for target in routes(bench, addresses)["geo:8083"].targets} == {9999}


def test_the_relay_has_nowhere_to_forward_without_ready_pods(bench, manifest, addresses):
    bench.apply(manifest.deployment("geo", replicas=0), manifest.service("geo", 8083))
    assert routes(bench, addresses)["geo:8083"].targets == ()


def test_metrics_are_read_through_the_relay(bench, manifest, addresses):
    bench.apply(scraped(manifest, "geo"), manifest.deployment("store"))
    pod = bench.pod("geo")
    (known, other) = build_scrape_targets(bench.store, addresses, bench.cluster.service_of)
    route = routes(bench, addresses)[f"metrics of {pod['metadata']['name']}"]
    assert known.address == (route.ip, 9464)
    assert route.targets == (RelayTarget(pod=pod["metadata"]["name"], ip=pod["status"]["podIP"], port=9464),)
    assert (known.service, known.container, other.address) == ("geo", "geo-main", None)


def test_names_are_those_of_services_that_exist(bench, manifest):
    bench.apply(manifest.service("geo"), manifest.service("rate"))
    assert set(build_hosts(bench.store)) == {"geo", "rate"}
    bench.delete("Service", "rate")
    assert set(build_hosts(bench.store)) == {"geo"}


def stateful(bench, manifest, replicas=2):
    made = manifest.deployment("tikv", serviceName="tikv-peer", replicas=replicas)
    headless = manifest.service("tikv-peer", 20160)
    headless["spec"] = {**headless["spec"], "clusterIP": "None", "selector": {"app": "tikv"}}
    bench.apply(headless, {**made, "kind": "StatefulSet"})


def test_pods_of_a_stateful_set_have_names_behind_a_headless_service(bench, manifest, addresses):
    stateful(bench, manifest)
    found = build_hosts(bench.store)
    assert set(found) == {"tikv-peer", "tikv-0.tikv-peer", "tikv-1.tikv-peer"}
    assert found["tikv-peer"] == found["tikv-0.tikv-peer"]
    route = routes(bench, addresses)["tikv-1.tikv-peer:20160"]
    assert route.ip == found["tikv-1.tikv-peer"]
    ip = bench.store.get("Pod", "tikv-1")["status"]["podIP"]
    assert route.targets == (RelayTarget(pod="tikv-1", ip=ip, port=20160),)


def test_a_pod_that_is_not_ready_has_no_name_unless_the_service_shows_it(bench, manifest):
    stateful(bench, manifest)
    bench.missing_programs.add("faultset-service")
    bench.end("tikv-0")
    assert set(build_hosts(bench.store)) == {"tikv-peer", "tikv-1.tikv-peer"}
    bench.patch("Service", "tikv-peer", {"spec": {"publishNotReadyAddresses": True}})
    assert "tikv-0.tikv-peer" in build_hosts(bench.store)


def test_a_block_is_owned_by_one_episode_at_a_time(addresses):
    with pytest.raises(PlatformError, match=rf"127\.{addresses.number}\.0\.0/16 is in use by other episodes"):
        AddressBlock(addresses.number)


def test_a_released_block_can_be_claimed_again():
    block = AddressBlock()
    block.release()
    again = AddressBlock(block.number)
    again.release()


def test_a_port_that_somebody_has_is_named(addresses):
    with socket.socket() as taken:
        taken.bind((addresses.spare, 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with pytest.raises(PlatformError, match=f"port {port} cannot be used at 127"):
            addresses.check_ports([port])
    addresses.check_ports([port])


def test_no_address_is_given_twice(addresses):
    given = [addresses.allocate_pod_address() for _ in range(600)]
    given += [addresses.allocate_service_address() for _ in range(254)]
    assert len(set(given)) == len(given)
    scraping = {addresses.get_relay_address(address) for address in given[:600]}
    assert len(scraping) == 600
    assert not scraping & set(given)


def test_too_many_services_are_refused(addresses):
    for _ in range(254):
        addresses.allocate_service_address()
    with pytest.raises(PlatformError, match="at most 254 Services"):
        addresses.allocate_service_address()


SECOND = 1_000_000_000


def test_state_metrics_have_the_names_of_kube_state_metrics(bench, manifest):
    bench.apply(manifest.volume("geo"), manifest.claim("geo"), manifest.claiming("geo"), manifest.service("geo"))
    bench.end(bench.name("geo"), code=137, out_of_memory=True)
    found = {
        (one.metric, *one.labels.values()): (one.service, one.pod, one.container, one.kind, one.value)
        for one in build_state_samples(bench.store, bench.cluster.service_of)
    }
    pod = bench.name("geo")
    assert found["kube_deployment_spec_replicas", "geo"] == ("geo", None, None, "gauge", 1.0)
    assert found["kube_pod_status_phase", "Running"] == ("geo", pod, None, "gauge", 1.0)
    assert found["kube_pod_status_phase", "Pending"][-1] == 0.0
    assert found[("kube_pod_container_status_restarts_total",)] == ("geo", pod, "geo-main", "counter", 1.0)
    assert found["kube_pod_container_status_last_terminated_reason", "OOMKilled"][-1] == 1.0
    assert found["kube_endpoint_address", "geo", "true"][-1] == 1.0
    assert found["kube_persistentvolumeclaim_status_phase", "geo-pvc", "Bound"][-1] == 1.0
    assert found["kube_persistentvolume_status_phase", "geo-pv", "Released"][-1] == 0.0
