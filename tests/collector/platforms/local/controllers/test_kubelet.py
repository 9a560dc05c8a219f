"""Containers start, end and restart."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.local.controllers.commands import (
    LimitContainer,
    RefreshMounts,
    SignalContainer,
)
from faultset.collector.platforms.local.controllers.context import AS_ON_A_CLUSTER

PAUSE = "faultset/pause:3.9"


@pytest.fixture
def geo(bench, manifest):
    """A cluster in which geo runs behind a Service."""
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    return bench


def crash_until_it_waits(bench, times):
    """Crash as soon as it runs, `times` times, and return the waits between a crash and the next start."""
    waits = []
    for _ in range(times):
        bench.end(bench.name("geo"))
        crashed = bench.now
        while not bench.container("geo")["state"].get("running"):
            bench.now = bench.cluster.context.due_ns
            bench.settle()
        waits.append((bench.now - crashed) / 1e9)
    return waits


def patch_pod(bench, **fields):
    pod = bench.pod("geo")
    containers = [{**pod["spec"]["containers"][0], **fields}]
    bench.patch("Pod", pod["metadata"]["name"], {"spec": {"containers": containers}})


def test_restarts_wait_as_the_kubelet_does(geo):
    assert crash_until_it_waits(geo, 8) == [0, 10, 20, 40, 80, 160, 300, 300]
    assert geo.container("geo")["restartCount"] == 8


def test_the_waits_are_scaled_by_the_factor(make_bench, manifest):
    bench = make_bench(factor=0.1)
    bench.apply(manifest.deployment("geo"))
    assert crash_until_it_waits(bench, 4) == [0, 1, 2, 4]


def test_ten_healthy_minutes_make_the_next_restart_immediate(geo):
    crash_until_it_waits(geo, 4)
    geo.advance(601)
    assert crash_until_it_waits(geo, 2) == [0, 10]


def test_nine_healthy_minutes_do_not(geo):
    crash_until_it_waits(geo, 3)
    geo.advance(540)
    assert crash_until_it_waits(geo, 1) == [40]


def test_a_pod_in_back_off_is_not_ready_and_has_no_endpoints(geo):
    crash_until_it_waits(geo, 1)
    geo.end(geo.name("geo"), 1)
    container = geo.container("geo")
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert container["lastState"]["terminated"]["reason"] == "Error"
    assert container["restartCount"] == 1
    (subset,) = geo.store.get("Endpoints", "geo")["subsets"]
    assert (len(subset["addresses"]), len(subset["notReadyAddresses"])) == (0, 1)
    assert geo.store.get("Deployment", "geo")["status"]["availableReplicas"] == 0


def test_back_off_events_are_counted(geo):
    crash_until_it_waits(geo, 3)
    geo.end(geo.name("geo"))
    geo.advance(35)
    seen = [found for found in geo.cluster.events.occurrences if found.reason == "BackOff"]
    assert len({found.message for found in seen}) == 1
    assert [found.count for found in seen] == list(range(1, len(seen) + 1))
    assert seen[0].type == "Warning"
    assert seen[0].message.startswith("Back-off restarting failed container geo-main in pod geo-")


def test_a_program_that_ends_well_is_restarted_too(geo):
    geo.end(geo.name("geo"), 0)
    assert geo.container("geo")["lastState"]["terminated"]["reason"] == "Completed"
    assert geo.container("geo")["state"]["running"]


def test_a_container_that_ran_out_of_memory_says_so(geo):
    geo.end(geo.name("geo"), 137, out_of_memory=True)
    ended = geo.container("geo")["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    (seen,) = [found for found in geo.cluster.events.occurrences if found.reason == "OOMKilling"]
    assert (seen.kind, seen.name, seen.service) == ("Node", "node-1", None)


def test_another_image_in_place_restarts_the_container_in_the_same_pod(geo):
    before = geo.name("geo")
    patch_pod(geo, image=PAUSE)
    assert geo.name("geo") == before
    assert geo.container("geo")["restartCount"] == 1
    assert geo.container("geo")["image"] == f"docker.io/{PAUSE}"
    assert geo.pod("geo")["status"]["phase"] == "Running"
    assert geo.messages("Killing") == ["Container geo-main definition changed, will be restarted"]
    assert [start.image for start in geo.starts()] == ["faultset/app:1.0.0", PAUSE]


def test_a_changed_image_does_not_wait_in_the_old_back_off(geo):
    crash_until_it_waits(geo, 3)
    geo.end(geo.name("geo"))
    patch_pod(geo, image=PAUSE)
    assert geo.container("geo")["state"]["running"]


def test_other_limits_in_place_restart_nothing(geo):
    patch_pod(geo, resources={"limits": {"cpu": "100m", "memory": "256Mi"}})
    (changed,) = [command for command in geo.commands if isinstance(command, LimitContainer)]
    assert (changed.cpu_limit, changed.memory_limit) == (0.1, 256 * 2**20)
    assert geo.container("geo")["restartCount"] == 0


def test_a_pod_has_thirty_seconds_to_end(geo):
    name = geo.name("geo")
    geo.ignores_term.add(name)
    geo.delete("Pod", name)
    signals = lambda: [c.signal for c in geo.commands if isinstance(c, SignalContainer)]  # noqa: E731
    assert signals() == ["TERM"]
    geo.advance(29)
    assert signals() == ["TERM"]
    geo.advance(2)
    assert signals() == ["TERM", "KILL"]
    assert name not in [pod["metadata"]["name"] for pod in geo.pods("geo")]


def test_a_pod_that_is_ending_gets_no_new_connections(geo):
    name = geo.name("geo")
    geo.ignores_term.add(name)
    geo.delete("Pod", name)
    (subset,) = geo.store.get("Endpoints", "geo")["subsets"]
    assert name not in [found["targetRef"]["name"] for found in subset["addresses"]]


def test_a_pod_deleted_without_grace_is_killed_and_gone_at_once(geo):
    name = geo.name("geo")
    geo.ignores_term.add(name)
    geo.delete("Pod", name, grace_period_s=0)
    assert name not in geo.running
    assert geo.messages("Killing") == ["Stopping container geo-main"]


def test_an_unknown_image_cannot_be_pulled(bench, manifest):
    bench.apply(manifest.deployment("geo", container={"image": "shop/geo:9"}))
    assert bench.container("geo")["state"]["waiting"]["reason"] == "ErrImagePull"
    bench.advance(5)
    assert bench.container("geo")["state"]["waiting"]["reason"] == "ImagePullBackOff"
    bench.advance(60)
    assert bench.pod("geo")["status"]["phase"] == "Pending"
    assert bench.container("geo")["restartCount"] == 0
    assert len(bench.messages("Pulling")) == 3
    assert 'Back-off pulling image "shop/geo:9"' in bench.messages("BackOff")


def test_an_unknown_program_fails_to_start(bench, manifest):
    bench.missing_programs.add("goe")
    bench.apply(manifest.deployment("geo", container={"command": ["goe"]}))
    container = bench.container("geo")
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["reason"] == "StartError"
    assert container["lastState"]["terminated"]["exitCode"] == 128
    bench.advance(11)
    assert bench.container("geo")["restartCount"] == 2
    assert 'exec: "goe": executable file not found' in bench.messages("Failed")[0]


def config(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}


@pytest.fixture
def configured(manifest):
    """A Deployment that mounts a ConfigMap."""
    return manifest.deployment(
        "geo",
        pod={"volumes": [{"name": "config", "configMap": {"name": "settings"}}]},
        container={"volumeMounts": [{"name": "config", "mountPath": "/etc/settings"}]},
    )


def test_a_config_map_is_mounted_as_files(bench, configured):
    bench.apply(config(**{"app.yaml": "a: 1"}), configured)
    (mount,) = bench.starts()[0].mounts
    assert (mount.path, mount.files) == ("/etc/settings", {"app.yaml": "a: 1"})


def test_a_missing_config_map_keeps_the_container_from_being_created(bench, configured):
    bench.apply(configured)
    assert bench.container("geo")["state"]["waiting"]["reason"] == "ContainerCreating"
    message = 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found'
    assert bench.messages("FailedMount")[0] == message
    bench.apply(config(a="1"))
    bench.advance(10)
    assert bench.container("geo")["state"]["running"]


def test_a_changed_config_map_reaches_a_running_pod_within_a_minute(bench, configured):
    bench.apply(config(a="1"), configured)
    bench.patch("ConfigMap", "settings", {"data": {"a": "2"}})
    bench.advance(61)
    (refreshed,) = [command for command in bench.commands if isinstance(command, RefreshMounts)]
    assert refreshed.mounts[0].files == {"a": "2"}
    assert bench.container("geo")["restartCount"] == 0


def test_a_restarted_container_sees_the_config_map_of_now(bench, configured):
    bench.apply(config(a="1"), configured)
    bench.patch("ConfigMap", "settings", {"data": {"a": "2"}})
    bench.end(bench.name("geo"))
    assert bench.starts()[-1].mounts[0].files == {"a": "2"}


def test_variables_come_from_the_pod_and_from_other_objects(bench, manifest):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "data": {"word": "aHVzaA=="}}
    env = [
        {"name": "PLAIN", "value": "1"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "word"}}},
        {"name": "MAYBE", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
    ]
    bench.apply(
        secret, manifest.deployment("geo", container={"env": env, "envFrom": [{"secretRef": {"name": "login"}}]})
    )
    (started,) = bench.starts()
    assert started.env == {
        "PLAIN": "1",
        "NAME": bench.name("geo"),
        "ADDRESS": started.address,
        "APP": "geo",
        "WORD": "hush",
        "word": "hush",
    }


def test_a_missing_reference_in_the_environment_is_a_config_error(bench, manifest):
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]
    bench.apply(manifest.deployment("geo", container={"env": env}))
    assert bench.container("geo")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert bench.messages("Failed")[0] == 'Error: configmap "settings" not found'
    bench.apply(config(a="1"))
    bench.advance(11)
    assert bench.container("geo")["state"]["running"]


def test_a_missing_key_is_a_config_error_and_its_variable_is_fixed_at_the_start(bench, manifest):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"word": "hush"}}
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "word"}}},
    ]
    origin = [{"prefix": "SET_", "configMapRef": {"name": "settings"}}]
    bench.apply(config(a="1"), secret, manifest.deployment("geo", container={"env": env, "envFrom": origin}))
    assert bench.starts()[0].env == {"A": "1", "WORD": "hush", "SET_a": "1"}
    bench.patch("ConfigMap", "settings", {"data": {"a": None, "b": "1"}})
    bench.advance(120)
    assert bench.container("geo")["state"]["running"]
    bench.delete("Pod", bench.name("geo"), grace_period_s=0)
    waiting = bench.container("geo")["state"]["waiting"]
    message = "couldn't find key a in ConfigMap shop/settings"
    assert waiting == {"reason": "CreateContainerConfigError", "message": message}
    assert bench.messages("Failed") == [f"Error: {message}"]
    bench.patch("Secret", "login", {"data": {"word": "bG91ZA=="}})
    bench.patch("ConfigMap", "settings", {"data": {"a": "2"}})
    bench.advance(11)
    assert bench.starts()[-1].env == {"A": "2", "WORD": "loud", "SET_a": "2", "SET_b": "1"}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        (
            {"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}},
            'volume "config" : configmap references non-existent config key: b',
        ),
        (
            {"secret": {"secretName": "login", "items": [{"key": "b", "path": "b"}]}},
            'volume "config" : references non-existent secret key: b',
        ),
        ({"secret": {"secretName": "none"}}, 'volume "config" : secret "none" not found'),
    ],
)
def test_a_missing_file_keeps_the_container_from_being_created(bench, configured, volume, message):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "data": {"a": "MQ=="}}
    configured["spec"]["template"]["spec"]["volumes"] = [{"name": "config", **volume}]
    bench.apply(config(a="1"), secret, configured)
    assert bench.container("geo")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert bench.messages("FailedMount")[0] == f"MountVolume.SetUp failed for {message}"
    assert bench.pod("geo")["status"]["phase"] == "Pending"
    (of_kind,) = volume.values()
    volume = {next(iter(volume)): {**of_kind, "optional": True}}
    bench.patch("Deployment", "geo", {"spec": {"template": {"spec": {"volumes": [{"name": "config", **volume}]}}}})
    assert bench.container("geo")["state"]["running"]


def test_news_of_an_earlier_start_are_ignored(geo):
    started = geo.running[geo.name("geo")]
    geo.end(geo.name("geo"))
    geo.running["again"] = started
    geo.end("again", 3)
    assert geo.container("geo")["restartCount"] == 1
    assert geo.container("geo")["state"]["running"]


@pytest.fixture
def slow_starts(geo):
    geo.cluster.context.start_times = AS_ON_A_CLUSTER
    return geo


def test_a_new_pod_waits_for_its_sandbox_and_its_program_for_its_imports(slow_starts):
    before = len(slow_starts.starts())
    slow_starts.delete("Pod", slow_starts.name("geo"), grace_period_s=0)
    slow_starts.advance(0.5)
    assert len(slow_starts.starts()) == before
    assert slow_starts.container("geo")["state"] == {"waiting": {"reason": "ContainerCreating"}}
    slow_starts.advance(0.2)
    (started,) = slow_starts.starts()[before:]
    assert started.program_s == AS_ON_A_CLUSTER.program_s


def test_the_end_of_a_container_is_noticed_at_the_kubelets_next_look(slow_starts):
    assert crash_until_it_waits(slow_starts, 3) == [1, 10, 20]
