"""Commands on a platform: what they change, what they print, what they refuse."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.mitigation.commands import Kubectl, check_line
from faultset.collector.mitigation.live_state import KubectlSession, LiveState
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.spec.credentials import decoded
from faultset.datasets.kubectl.commands import CommandError

WRITES = {
    "kubectl scale deployment geo --replicas=2": "deployment.apps/geo scaled",
    "kubectl rollout restart deploy/geo deploy/rate": "deployment.apps/geo restarted\ndeployment.apps/rate restarted",
    "kubectl set image deployment/geo hotel-reserv-geo=faultset/app:2": "deployment.apps/geo image updated",
    "kubectl set env deployment/geo MODE=slow": "deployment.apps/geo env updated",
    "kubectl set resources deployment geo --limits=cpu=2": "deployment.apps/geo resource requirements updated",
    "kubectl set selector svc/geo app=other": "service/geo selector updated",
    "kubectl label svc geo tier=one": "service/geo labeled",
    "kubectl annotate -n hotel svc geo note-": "service/geo annotated (no change)",
    "kubectl -n hotel delete svc geo": 'service "geo" deleted',
    """kubectl patch svc geo -p '{"spec": {"ports": [{"port": 8083, "targetPort": 1}]}}'""": "service/geo patched",
}


def state(platform: FakePlatform) -> tuple[object, ...]:
    service, deployment = platform.get("Service", "geo"), platform.get("Deployment", "geo")
    return service["spec"], service["metadata"].get("labels"), deployment["spec"]


@pytest.mark.parametrize(("line", "output"), WRITES.items())
def test_a_change_is_made_journaled_and_undone(
    kubectl: Kubectl, platform: FakePlatform, line: str, output: str
) -> None:
    untouched = state(platform)
    result = kubectl.run(line)
    assert (result.status, result.output) == ("done", output)
    if "no change" not in output:
        assert len(platform.journal.open_undo_operations()) == 1 + output.count("\n")
    platform.undo()
    assert state(platform) == untouched


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("helm upgrade x", "a command must start with kubectl or sleep, got 'helm'"),
        ("get pods", "a command must start with kubectl or sleep; write: kubectl get pods"),
        ("", "got 'nothing'"),
        ("kubectl", "a command must have a verb"),
        ("kubectl frobnicate", 'unknown verb "frobnicate"'),
        ("kubectl get", "a kind is missing"),
        ("kubectl get podz", "doesn't have a resource type"),
        ("kubectl get pods -n kube-system", "namespace kube-system is not the application's"),
        ("kubectl -n kube-system get pods", "namespace kube-system is not the application's"),
        ("kubectl delete pods", "give names, a selector with -l, or --all"),
        ("kubectl delete node kind", "do not belong to the application"),
        ("kubectl delete svc geo -l app=rate", "cannot be combined with a selector"),
        ("kubectl describe svc/geo -l app=rate", "cannot be combined with a selector"),
        ("kubectl scale deploy geo --replicas=9999", "from 0 to 10"),
        ("kubectl scale svc geo --replicas=1", "only for deployments.apps, statefulsets.apps, replicasets.apps"),
        ("kubectl rollout restart svc/geo", "have no rollouts"),
        ("kubectl patch svc geo -p '[]'", "must be a mapping"),
        ("""kubectl patch svc geo --type merge -p '{"metadata": {"name": "x"}}'""", "cannot be changed"),
        ("""kubectl patch svc geo --type merge -p '{"kind": "Pod"}'""", "cannot be changed"),
        ("""kubectl patch svc geo --type merge -p '{"spec": 3}'""", "must be a mapping"),
        ("kubectl exec deploy/geo -- sh -c 'rm -rf x'", "exec may only run faultset-store admin"),
        ("kubectl exec deploy/geo -- /bin/cat /etc/passwd", "exec may only run faultset-store admin"),
        ("kubectl exec deploy/geo -- faultset-store mongodb", "exec may only run faultset-store admin"),
        (
            "kubectl exec deploy/mongodb-geo -- faultset-store admin mongodb lock --port 1 --pid-file /etc/passwd",
            "exec may only run faultset-store admin",
        ),
        ("kubectl apply -f /etc/passwd", "must be a relative path"),
        ("kubectl apply -f ../x.yaml", "must be a relative path"),
        ("kubectl apply -f missing.yaml", "is missing"),
        ("kubectl logs deploy/geo --tail x", "must be a whole number"),
        ("kubectl wait deploy/geo --for=delete", "must be condition=available"),
    ],
)
def test_what_may_not_be_done_is_refused_in_one_sentence_and_nothing_happens(
    kubectl: Kubectl, platform: FakePlatform, line: str, sentence: str
) -> None:
    result = kubectl.run(line)
    assert result.status == "refused"
    assert "\n" not in result.output
    assert re.search(sentence, result.output)
    assert platform.journal.open_undo_operations() == []


def test_what_is_not_there_fails_with_the_servers_words(kubectl: Kubectl) -> None:
    result = kubectl.run("kubectl rollout restart deployment/gone")
    assert result.status == "failed"
    assert result.output == 'Error from server (NotFound): deployments.apps "gone" not found'


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("kubectl get pods gone", "failed", 'Not found: pods "gone"; choose one'),
        ("kubectl get pods -l app=nothing", "done", "No rows: the namespace hotel has no such pods."),
        ("kubectl get events", "done", "No rows: no such event in the namespace hotel."),
        ("kubectl logs deploy/geo --previous", "failed", 'Not found: previous terminated container in pod "geo-'),
        ("kubectl get pods -w", "refused", "Refused: watching is interactive; repeat the command later."),
        ("kubectl get svc --sort-by .metadata.name --no-headers -o name", "done", "service/consul"),
        ("kubectl get deploy -A --field-selector metadata.name=geo --no-headers", "done", "hotel   geo "),
        ("kubectl get events -o toml", "refused", "Invalid: the output format must be one of"),
        ("kubectl describe svc geo", "done", "Name:             geo"),
        ("kubectl config current-context", "done", "live"),
    ],
)
def test_a_live_platform_is_read_in_the_words_of_a_recording(
    kubectl: Kubectl, line: str, status: str, words: str
) -> None:
    result = kubectl.run(line)
    assert (result.status, result.output[: len(words)]) == (status, words)


def test_log_lines_of_a_live_pod_have_times_and_end_with_the_newest(kubectl: Kubectl, platform: FakePlatform) -> None:
    pod = platform.list("Pod", {"io.kompose.service": "geo"})[0]["metadata"]["name"]
    now_ns = time.time_ns() // 10**9 * 10**9
    for ago_s, message in ((9, "first"), (5, "second"), (1, "third")):
        row = {"time": now_ns - ago_s * 10**9, "pod": pod, "container": "geo", "level": "info", "message": message}
        platform.rows["logs"].append({"service": "geo", **row})
    shown = kubectl.run("kubectl logs deploy/geo --tail 2").output.splitlines()
    assert [line.partition("Z ")[2] for line in shown] == ["INFO second", "INFO third"]


def test_secrets_are_never_printed(kubectl: Kubectl, platform: FakePlatform) -> None:
    secrets = [value for found in platform.list("Secret") for value in found["data"].values()]
    # the seed of an application without variations is a single digit, which any output may contain
    secrets += [text for value in secrets if len(text := decoded(value)) > 1]
    assert secrets
    shown = [kubectl.run(f"kubectl {verb}").output for verb in ("get secrets -o yaml", "get secrets -o json")]
    shown.append(kubectl.run("kubectl describe secrets").output)
    assert not [value for value in secrets if any(value in text for text in shown)]


def test_objects_are_shown_as_tables_with_kubectls_columns(kubectl: Kubectl) -> None:
    heads = {
        "pods": "NAME READY STATUS RESTARTS AGE",
        "deployments": "NAME READY UP-TO-DATE AVAILABLE AGE",
        "svc": "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
        "pvc": "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS AGE",
        "pv": "NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS REASON AGE",
        "cm": "NAME DATA AGE",
        "secrets": "NAME TYPE DATA AGE",
    }
    for kind, head in heads.items():
        assert " ".join(kubectl.run(f"kubectl get {kind}").output.splitlines()[0].split()) == head
    assert kubectl.run("kubectl get svc geo -o name").output == "service/geo"
    assert "\n\n" in kubectl.run("kubectl get deploy,svc").output


def test_objects_are_selected_by_sets_of_labels_and_shown_by_templates(kubectl: Kubectl) -> None:
    line = "kubectl get deploy -l 'io.kompose.service in (geo, rate)' -o jsonpath='{.items[*].metadata.name}'"
    assert kubectl.run(line).output == "geo rate"
    others = kubectl.run("kubectl get deploy -l io.kompose.service!=geo -o name").output.split()
    assert "deployment.apps/rate" in others
    assert "deployment.apps/geo" not in others
    columns = "custom-columns=NAME:.metadata.name,PORT:.spec.ports[0].port,X:.spec.x"
    assert kubectl.run(f"kubectl get svc geo -o {columns}").output.split()[3:] == ["geo", "8083", "<none>"]
    assert kubectl.run("kubectl get deploy geo --no-headers --show-labels").output.endswith("io.kompose.service=geo")
    assert kubectl.run("kubectl get svc -o toml").status == "refused"
    assert kubectl.run("kubectl get svc -l 'a in b'").status == "refused"


def test_a_manifest_of_a_kind_that_is_not_known_is_refused(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "foo.yaml").write_text("kind: Foo\nmetadata: {name: x}\n")
    (tmp_path / "list.yaml").write_text("kind: [Foo]\nmetadata: {name: x}\n")
    assert "foo do not belong to the application" in kubectl.run("kubectl apply -f foo.yaml").output
    assert "must contain objects" in kubectl.run("kubectl apply -f list.yaml").output


def test_a_manifest_brings_back_what_was_there_and_makes_nothing_new(
    kubectl: Kubectl, platform: FakePlatform, tmp_path: Path
) -> None:
    manifest = kubectl.run("kubectl get svc geo -o yaml").output
    (tmp_path / "geo.yaml").write_text(manifest)
    (tmp_path / "new.yaml").write_text(manifest.replace("name: geo", "name: mine"))
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "other.yaml").write_text("[1, 2]")
    platform.delete("Service", "geo")
    assert kubectl.run("kubectl apply -f geo.yaml").output == "service/geo created"
    assert kubectl.run("kubectl apply -f geo.yaml").output == "service/geo configured (no change)"
    assert "did not exist before" in kubectl.run("kubectl apply -f new.yaml").output
    assert kubectl.run("kubectl apply -f broken.yaml").output == "Refused: broken.yaml is not YAML; correct it."
    assert "must contain objects" in kubectl.run("kubectl apply -f other.yaml").output
    os.symlink("/etc/passwd", tmp_path / "link.yaml")
    assert "links are not followed" in kubectl.run("kubectl apply -f link.yaml").output


def test_an_object_is_replaced_by_a_manifest_that_leaves_fields_out(
    kubectl: Kubectl, platform: FakePlatform, tmp_path: Path
) -> None:
    untouched = platform.get("Service", "geo")
    platform.patch("Service", "geo", {"spec": {"clusterIP": "10.0.0.9", "sessionAffinity": "ClientIP"}})
    whole = {**untouched, "metadata": {"name": "geo", "labels": {"app": "new"}}}
    (tmp_path / "geo.json").write_text(json.dumps(whole))
    assert kubectl.run("kubectl replace -f geo.json").output == "service/geo replaced"
    replaced = platform.get("Service", "geo")
    assert replaced["spec"] == {"clusterIP": "10.0.0.9", **untouched["spec"]}
    assert replaced["metadata"]["labels"] == {"app": "new"}
    platform.delete("Service", "geo")
    assert "(NotFound)" in kubectl.run("kubectl replace -f geo.json").output
    platform.undo()
    restored = platform.get("Service", "geo")
    assert restored["spec"] == untouched["spec"]
    assert restored["metadata"]["labels"] == untouched["metadata"]["labels"]


def test_the_stores_administration_may_be_run_in_a_pod(kubectl: Kubectl, platform: FakePlatform) -> None:
    line = "kubectl exec -it deploy/mongodb-geo -- faultset-store admin mongodb grant-rights --port 27017 --auth"
    assert kubectl.run(line).status == "done"
    argv = ("faultset-store", "admin", "mongodb", "grant-rights", "--port", "27017", "--auth")
    assert ("exec", platform.list("Pod", {"io.kompose.service": "mongodb-geo"})[0]["metadata"]["name"], argv) in (
        platform.calls
    )


WORDS = """kubectl sleep get describe logs top patch apply delete scale rollout restart undo status history set image
        env resources selector label annotate exec wait pods deploy deployment/geo svc geo svc/geo secret all --all -A
        -n hotel kube-system -o yaml json wide -l app=geo -p {} {"spec":{"replicas":0}} [] --type json merge -- sh
        --replicas=1 --replicas -f x.yaml --tail=1 --since 5s a=b c- --for=condition=available --timeout 1s 1 ..
    """.split()


def can_be_parsed(line: str) -> bool:
    try:
        check_line(line)
    except CommandError:
        return False
    return True


def test_no_line_starts_a_process_or_ends_in_a_traceback(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    monkeypatch.setattr(os, "system", forbidden)
    rng = random.Random(11)
    for _ in range(400):
        line = " ".join(["kubectl", *rng.choices(WORDS, k=rng.randrange(7))])
        result = kubectl.run(line)
        assert result.status in ("done", "refused", "failed")
        assert result.status == "refused" or can_be_parsed(line), "what cannot be parsed is not carried out"


def test_a_pod_of_another_run_is_the_present_pod_of_its_owner_where_names_are_resolved(
    platform: FakePlatform, session: KubectlSession
) -> None:
    recorded = "geo-84fb7c8f7b-vvvtz"
    present = platform.list("Pod", {"io.kompose.service": "geo"})[0]["metadata"]["name"]
    assert Kubectl(session).run(f"kubectl delete pod {recorded}").status == "failed"
    resolving = Kubectl(replace(session, state=LiveState(platform, frozenset({"hotel"}), time.time_ns, by_owner=True)))
    result = resolving.run(f"kubectl delete pod/{recorded}")
    assert (result.status, result.output) == ("done", f'pod "{present}" deleted')
    assert result.resolved == {recorded: present}
    assert resolving.run("kubectl get pods").resolved == {}
    gone = resolving.run("kubectl delete pod nobody-84fb7c8f7b-vvvtz")
    assert (gone.status, gone.resolved) == ("failed", {})
