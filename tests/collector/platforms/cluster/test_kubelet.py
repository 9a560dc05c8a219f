"""Containers start, end and restart."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.cluster.context import (
    AS_ON_A_CLUSTER,
    WITHOUT_LOAD,
    LimitContainer,
    ProbeContainer,
    ProbeResult,
    RefreshMounts,
    SignalContainer,
)
from faultset.collector.platforms.cluster.object_store import InvalidObject
from faultset.datasets.kubectl.object_tables import object_cells, pod_status
from faultset.datasets.telemetry_formats.kubernetes_objects import WHITELISTS

PAUSE = "faultset/pause:3.9"


@pytest.fixture
def geo(bench, manifest):
    """A cluster in which geo runs behind a Service."""
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    return bench


def crash_until_it_waits(bench, times):
    """Crash geo `times` times as soon as it runs; return the waits between each crash and the next start."""
    waits = []
    for _ in range(times):
        bench.end(bench.name("geo"))
        crashed = bench.now_ns
        while not bench.container("geo")["state"].get("running"):
            bench.now_ns = bench.cluster.context.due_ns
            bench.settle()
        waits.append((bench.now_ns - crashed) / 1e9)
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
    geo.end(geo.name("geo"), code=1)
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
    seen = [found for found in geo.cluster.events.events if found.reason == "BackOff"]
    assert len({found.message for found in seen}) == 1
    assert [found.count for found in seen] == list(range(1, len(seen) + 1))
    assert seen[0].type == "Warning"
    assert seen[0].message.startswith("Back-off restarting failed container geo-main in pod geo-")


def test_a_program_that_ends_well_is_restarted_too(geo):
    geo.end(geo.name("geo"), code=0)
    assert geo.container("geo")["lastState"]["terminated"]["reason"] == "Completed"
    assert geo.container("geo")["state"]["running"]


def test_a_container_that_ran_out_of_memory_says_so(geo):
    geo.end(geo.name("geo"), code=137, out_of_memory=True)
    ended = geo.container("geo")["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    (seen,) = [found for found in geo.cluster.events.events if found.reason == "OOMKilling"]
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
    assert name not in {one.pod for one in geo.running.values()}
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
    (started,) = [one for one in geo.running.values() if one.pod == geo.name("geo")]
    geo.end(geo.name("geo"))
    geo.running["earlier", "start"] = started
    geo._end(("earlier", "start"), 3)
    geo.settle()
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


IMAGE = "faultset/app:1.0.0"


def init(name, **fields):
    return {"name": name, "image": IMAGE, "command": ["/bin/prepare", name], **fields}


@pytest.fixture
def geo_with_init(bench, manifest):
    """A cluster in which geo has two init containers."""
    bench.apply(
        manifest.deployment("geo", pod={"initContainers": [init("first"), init("second")]}), manifest.service("geo")
    )
    return bench


def started(bench):
    return [start.container for start in bench.starts()]


def conditions(bench):
    return {one["type"]: one for one in bench.pod("geo")["status"]["conditions"]}


def test_they_run_in_order_and_the_container_waits_for_the_last(geo_with_init):
    assert started(geo_with_init) == ["first"]
    status = geo_with_init.pod("geo")["status"]
    assert status["phase"] == "Pending"
    assert [next(iter(one["state"])) for one in status["initContainerStatuses"]] == ["running", "waiting"]
    assert geo_with_init.container("geo")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert conditions(geo_with_init)["Initialized"]["reason"] == "ContainersNotInitialized"
    assert conditions(geo_with_init)["Initialized"]["message"] == "containers with incomplete status: [first second]"
    assert pod_status(geo_with_init.pod("geo")) == "Init:0/2"
    (subset,) = geo_with_init.store.get("Endpoints", "geo")["subsets"]
    assert not subset.get("addresses")
    geo_with_init.end(geo_with_init.name("geo"), code=0)
    assert started(geo_with_init) == ["first", "second"]
    assert pod_status(geo_with_init.pod("geo")) == "Init:1/2"
    geo_with_init.end(geo_with_init.name("geo"), code=0)
    assert started(geo_with_init) == ["first", "second", "geo-main"]
    status = geo_with_init.pod("geo")["status"]
    assert [one["state"]["terminated"]["reason"] for one in status["initContainerStatuses"]] == ["Completed"] * 2
    assert [one["ready"] for one in status["initContainerStatuses"]] == [True, True]
    assert (status["phase"], conditions(geo_with_init)["Initialized"]["status"]) == ("Running", "True")
    assert pod_status(geo_with_init.pod("geo")) == "Running"


def test_one_that_fails_is_started_again_after_a_back_off(geo_with_init):
    geo_with_init.end(geo_with_init.name("geo"), code=1)
    assert started(geo_with_init) == ["first", "first"]
    geo_with_init.end(geo_with_init.name("geo"), code=1)
    assert pod_status(geo_with_init.pod("geo")) == "Init:CrashLoopBackOff"
    assert object_cells(geo_with_init.pod("geo"))["RESTARTS"] == 1
    assert geo_with_init.container("geo")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert geo_with_init.messages("BackOff")[0].startswith("Back-off restarting failed container first in pod geo-")
    geo_with_init.advance(11)
    assert started(geo_with_init) == ["first"] * 3
    geo_with_init.end(geo_with_init.name("geo"), code=0)
    assert started(geo_with_init)[-1] == "second"


def test_the_end_of_one_that_fails_is_seen_until_it_starts_again(geo_with_init):
    geo_with_init.cluster.context.start_times = AS_ON_A_CLUSTER
    geo_with_init.end(geo_with_init.name("geo"), code=3)
    assert pod_status(geo_with_init.pod("geo")) == "Init:Error"
    recorded = WHITELISTS["Pod"](geo_with_init.pod("geo"))
    assert recorded["initContainers"][0]["exitCode"] == 3
    geo_with_init.advance(1)
    assert started(geo_with_init) == ["first", "first"]


def test_they_do_not_run_again_when_the_container_ends(geo_with_init):
    for _ in range(2):
        geo_with_init.end(geo_with_init.name("geo"), code=0)
    geo_with_init.end(geo_with_init.name("geo"), code=2)
    assert started(geo_with_init) == ["first", "second", "geo-main", "geo-main"]
    geo_with_init.delete("Pod", geo_with_init.name("geo"), grace_period_s=0)
    assert started(geo_with_init)[4:] == ["first"]


def test_a_missing_key_holds_up_an_init_container_too(bench, manifest):
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]
    bench.apply(manifest.deployment("geo", pod={"initContainers": [init("first", env=env)]}))
    assert pod_status(bench.pod("geo")) == "Init:CreateContainerConfigError"


def test_all_volumes_of_a_pod_are_there_before_the_first_of_them_runs(bench, manifest):
    volumes = [{"name": "config", "configMap": {"name": "settings"}}]
    mounts = [{"name": "config", "mountPath": "/etc/settings"}]
    pod = {"initContainers": [init("first")], "volumes": volumes}
    bench.apply(manifest.deployment("geo", pod=pod, container={"volumeMounts": mounts}))
    assert started(bench) == []
    assert pod_status(bench.pod("geo")) == "Init:0/1"
    message = 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found'
    assert bench.messages("FailedMount")[0] == message
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}})
    bench.advance(10)
    assert started(bench) == ["first"]


def test_a_node_must_have_what_the_largest_of_them_requests(bench, manifest):
    large = init("large", resources={"requests": {"cpu": "17"}})
    bench.apply(manifest.deployment("geo", pod={"initContainers": [large]}))
    assert "Insufficient cpu" in bench.messages("FailedScheduling")[0]


def test_more_requested_than_allowed_is_refused_as_kubernetes_does(bench, manifest):
    wrong = init("wrong", resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    with pytest.raises(InvalidObject) as refused:
        bench.apply(manifest.deployment("geo", pod={"initContainers": [wrong]}))
    assert str(refused.value) == (
        'Deployment.apps "geo" is invalid: spec.template.spec.initContainers[0].resources.requests: Invalid value: '
        '"2Gi": must be less than or equal to memory limit of 1Gi'
    )


READINESS = {"readinessProbe": {"tcpSocket": {"port": 4000}, "periodSeconds": 2}}
LIVENESS = {"livenessProbe": {"httpGet": {"path": "/metrics", "port": "web"}, "periodSeconds": 5}}


def questions(bench):
    return [command for command in bench.commands if isinstance(command, ProbeContainer)]


def answer(bench, failure=""):
    question = questions(bench)[-1]
    about = {"uid": question.uid, "container": question.container, "attempt": question.attempt}
    bench.cluster.handle(ProbeResult(**about, purpose=question.purpose, time_ns=bench.now_ns, failure=failure))
    bench.settle()


def addresses(bench):
    subsets = bench.store.get("Endpoints", "geo")["subsets"]
    return [(len(one["addresses"]), len(one["notReadyAddresses"])) for one in subsets]


def test_a_container_with_a_readiness_probe_gets_no_requests_until_it_answers(bench, manifest):
    bench.apply(manifest.deployment("geo", container=READINESS), manifest.service("geo"))
    assert bench.container("geo")["state"]["running"]
    assert (bench.container("geo")["ready"], addresses(bench)) == (False, [(0, 1)])
    (question,) = questions(bench)
    assert (question.address, question.port, question.path) == (bench.pod("geo")["status"]["podIP"], 4000, None)
    answer(bench)
    assert (bench.container("geo")["ready"], addresses(bench)) == (True, [(1, 0)])


def test_a_container_is_asked_once_in_a_period_and_not_while_an_answer_is_due(bench, manifest):
    bench.apply(manifest.deployment("geo", container=READINESS))
    bench.advance(10)
    assert len(questions(bench)) == 1
    answer(bench)
    bench.advance(1.9)
    assert len(questions(bench)) == 1
    bench.advance(0.2)
    assert len(questions(bench)) == 2


def test_before_there_are_clients_a_container_that_starts_is_asked_again_at_once(bench, manifest):
    bench.cluster.context.start_times = WITHOUT_LOAD
    bench.apply(manifest.deployment("geo", container=READINESS))
    answer(bench, "dial tcp 127.9.1.1:4000: connect: connection refused")
    bench.advance(0.11)
    assert len(questions(bench)) == 2
    bench.cluster.context.start_times = AS_ON_A_CLUSTER
    answer(bench, "dial tcp 127.9.1.1:4000: connect: connection refused")
    bench.advance(1.9)
    assert len(questions(bench)) == 2


def test_three_failures_take_a_pod_out_of_its_service_and_one_success_brings_it_back(bench, manifest):
    bench.apply(manifest.deployment("geo", container=READINESS), manifest.service("geo"))
    answer(bench)
    for expected in ([(1, 0)], [(1, 0)], [(0, 1)]):
        bench.advance(2)
        answer(bench, "dial tcp 127.9.1.1:4000: connect: connection refused")
        assert addresses(bench) == expected
    assert bench.container("geo")["restartCount"] == 0
    text = "Readiness probe failed: dial tcp 127.9.1.1:4000: connect: connection refused"
    assert bench.messages("Unhealthy") == [text] * 3
    bench.advance(2)
    answer(bench)
    assert addresses(bench) == [(1, 0)]


def test_a_container_that_does_not_live_is_restarted_until_it_waits_in_a_back_off(bench, manifest):
    ports = {"ports": [{"name": "web", "containerPort": 9464}]}
    bench.apply(manifest.deployment("geo", container={**LIVENESS, **ports}))
    for restarts in (1, 1):
        assert bench.container("geo")["ready"]
        for _ in range(3):
            assert (questions(bench)[-1].port, questions(bench)[-1].path) == (9464, "/metrics")
            answer(bench, "HTTP probe failed with statuscode: 500")
            bench.advance(5)
        assert bench.container("geo")["restartCount"] == restarts
    assert bench.container("geo")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert bench.messages("Killing")[0] == "Container geo-main failed liveness probe, will be restarted"


def test_an_answer_of_an_earlier_start_counts_for_nothing(bench, manifest):
    bench.apply(manifest.deployment("geo", container=READINESS))
    bench.end(bench.name("geo"))
    first = questions(bench)[0]
    about = {"uid": first.uid, "container": first.container, "attempt": first.attempt, "purpose": first.purpose}
    bench.cluster.handle(ProbeResult(**about, time_ns=bench.now_ns))
    bench.settle()
    assert not bench.container("geo")["ready"]
    answer(bench)
    assert bench.container("geo")["ready"]


def test_a_rolling_update_keeps_the_old_pod_until_the_new_one_answers(bench, manifest):
    bench.apply(manifest.deployment("geo", container=READINESS))
    answer(bench)
    old = bench.name("geo")
    containers = bench.store.get("Deployment", "geo")["spec"]["template"]["spec"]["containers"]
    changed = [{**containers[0], "image": "faultset/app:1.0.1"}]
    bench.patch("Deployment", "geo", {"spec": {"template": {"spec": {"containers": changed}}}})
    assert old in [pod["metadata"]["name"] for pod in bench.pods("geo")]
    answer(bench)
    assert bench.name("geo") != old
