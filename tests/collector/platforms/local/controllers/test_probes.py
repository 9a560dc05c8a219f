"""Probes decide who is ready, and restart who does not live."""

from __future__ import annotations

from faultset.collector.platforms.local.controllers.commands import ProbeContainer, ProbeResult
from faultset.collector.platforms.local.controllers.context import AS_ON_A_CLUSTER, BEFORE_CLIENTS

READINESS = {"readinessProbe": {"tcpSocket": {"port": 4000}, "periodSeconds": 2}}
LIVENESS = {"livenessProbe": {"httpGet": {"path": "/metrics", "port": "web"}, "periodSeconds": 5}}


def questions(bench):
    return [command for command in bench.commands if isinstance(command, ProbeContainer)]


def answer(bench, failure=""):
    question = questions(bench)[-1]
    about = {"uid": question.uid, "container": question.container, "attempt": question.attempt}
    bench.cluster.handle(ProbeResult(**about, purpose=question.purpose, time_ns=bench.now, failure=failure))
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
    bench.cluster.context.start_times = BEFORE_CLIENTS
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
    bench.cluster.handle(ProbeResult(**about, time_ns=bench.now))
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
