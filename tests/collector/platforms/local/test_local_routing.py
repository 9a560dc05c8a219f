from __future__ import annotations

import socket

import pytest

from faultset.collector.platforms.local.control_plane.addresses import AddressBlock
from faultset.collector.platforms.local.control_plane.routing import hosts, relay_state, telemetry_pods
from faultset.collector.platforms.local.controllers.commands import Mount
from faultset.collector.platforms.local.node.volumes import Volumes
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


def forwards(bench, addresses):
    state = relay_state(bench.store, addresses, [], 1)
    return {forward["name"]: forward for forward in state["forwards"]}


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
    given = [addresses.pod() for _ in range(600)] + [addresses.service() for _ in range(254)]
    assert len(set(given)) == len(given)
    scraping = {addresses.scrape(address) for address in given[:600]}
    assert len(scraping) == 600
    assert not scraping & set(given)


def test_too_many_services_are_refused(addresses):
    for _ in range(254):
        addresses.service()
    with pytest.raises(PlatformError, match="room for 254 Services"):
        addresses.service()


def test_the_relay_forwards_to_ready_pods(bench, manifest, addresses):
    bench.apply(manifest.deployment("geo", replicas=2), manifest.service("geo", 8083))
    forward = forwards(bench, addresses)["geo:8083"]
    assert forward["port"] == 8083
    assert {target["pod"] for target in forward["targets"]} == {pod["metadata"]["name"] for pod in bench.pods("geo")}
    bench.patch("Service", "geo", {"spec": {"ports": [{"port": 8083, "targetPort": 9999}]}})
    assert {target["port"] for target in forwards(bench, addresses)["geo:8083"]["targets"]} == {9999}


def test_the_relay_has_nowhere_to_forward_without_ready_pods(bench, manifest, addresses):
    bench.apply(manifest.deployment("geo", replicas=0), manifest.service("geo", 8083))
    assert forwards(bench, addresses)["geo:8083"]["targets"] == []


def test_metrics_are_read_through_the_relay(bench, manifest, addresses):
    bench.apply(scraped(manifest, "geo"), manifest.deployment("store"))
    pod = bench.pod("geo")
    (known, other) = telemetry_pods(bench.store, addresses, bench.cluster.service_of)
    forward = forwards(bench, addresses)[f"metrics of {pod['metadata']['name']}"]
    assert known["scrape"] == [forward["ip"], 9464]
    assert forward["targets"] == [{"pod": pod["metadata"]["name"], "ip": pod["status"]["podIP"], "port": 9464}]
    assert (known["service"], known["container"], other["scrape"]) == ("geo", "geo-main", None)


def test_names_are_those_of_services_that_exist(bench, manifest):
    bench.apply(manifest.service("geo"), manifest.service("rate"))
    assert set(hosts(bench.store)) == {"geo", "rate"}
    bench.delete("Service", "rate")
    assert set(hosts(bench.store)) == {"geo"}


def test_mounts_become_folders_and_variables(tmp_path):
    volumes = Volumes(tmp_path)
    mounts = [
        Mount(path="/etc/faultset", files={"app.yaml": "name: shop"}),
        Mount(path="/data/db", volume="geo-pv"),
        Mount(path="/tmp/scratch", volume="pod/uid-1/scratch"),
    ]
    places = volumes.mount("geo-a", "geo-main", mounts)
    with open(places["FAULTSET_APP"], encoding="utf-8") as file:
        assert file.read() == "name: shop"
    (tmp_path / "volumes" / "geo-pv" / "kept").touch()
    again = volumes.mount("geo-b", "geo-main", mounts)
    assert [entry.name for entry in (tmp_path / "volumes" / "geo-pv").iterdir()] == ["kept"]
    assert again["FAULTSET_DATA"] != places["FAULTSET_DATA"]


def test_what_a_pod_shares_with_nobody_goes_with_it(tmp_path):
    volumes = Volumes(tmp_path)
    mounts = [Mount(path="/data/db", volume="geo-pv"), Mount(path="/cache", volume="pod/uid-1/cache")]
    volumes.mount("geo-a", "geo-main", mounts)
    volumes.forget("geo-a", "uid-1")
    assert not (tmp_path / "pods" / "geo-a").exists()
    assert not (tmp_path / "volumes" / "pod" / "uid-1").exists()
    assert (tmp_path / "volumes" / "geo-pv").is_dir()


def test_files_that_left_a_config_map_leave_the_mount(tmp_path):
    volumes = Volumes(tmp_path)
    volumes.mount("geo-a", "geo-main", [Mount(path="/etc/x", files={"a": "1", "b": "2"})])
    volumes.mount("geo-a", "geo-main", [Mount(path="/etc/x", files={"b": "3"})])
    folder = tmp_path / "pods" / "geo-a" / "geo-main" / "mounts" / "etc" / "x"
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"b": "3"}
