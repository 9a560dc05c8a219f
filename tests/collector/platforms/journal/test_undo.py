"""What every platform's undo does alike: each act may come twice, and what is in its way is waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from faultset.collector.platforms.api.objects import Object, ObjectNotFound
from faultset.collector.platforms.api.pod_state import waits_in_back_off
from faultset.collector.platforms.journal.undo import UndoExecutor
from faultset.collector.platforms.journal.undo_operations import undo_of_secret
from faultset.collector.spec.credentials import SecretKey
from faultset.core.errors import PlatformError

DELETED = {"deletionTimestamp": "2026-01-01T00:00:09Z"}


class Objects(UndoExecutor):
    """Objects in memory; one that is being deleted is gone after a few looks at it."""

    timeout_s, pause_s = 5.0, 0.0

    def __init__(self, *objects: Object):
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.looks = 0
        self.done: list[Any] = []
        self.failing = 0
        self.immutable: set[str] = set()

    def _find(self, kind: str, name: str) -> Object | None:
        self.looks += 1
        found = self.objects.get((kind, name))
        if found and found["metadata"].get("deletionTimestamp") and self.looks > 2:
            del self.objects[kind, name]
        return found

    def _list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return [one for (found, _), one in self.objects.items() if found == kind]

    def _create(self, wanted: Mapping[str, Any]) -> bool:
        key = wanted["kind"], wanted["metadata"]["name"]
        is_new = key not in self.objects
        self.objects.setdefault(key, dict(wanted))
        return is_new

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        if (kind, name) not in self.objects:
            raise ObjectNotFound(f"no {kind} {name}")
        if kind in self.immutable:
            raise PlatformError(f"{kind} {name} is invalid: field is immutable")
        self.done.append((kind, name, change))

    def _delete(self, kind: str, names: Sequence[str]) -> None:
        self.done += names
        for name in names:
            self.objects.pop((kind, name), None)

    def _run(self, pod: str, argv: Sequence[str]) -> None:
        if self.failing:
            self.failing -= 1
            raise PlatformError("the container does not run yet")
        self.done.append((pod, *argv))

    def _lift(self, pod: str) -> None:
        self.done.append(pod)


def pod(name: str, second: int = 0, *, phase: str = "Running", reason: str | None = None, **metadata: Any) -> Object:
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{second:02d}Z", **metadata},
        "status": {"phase": phase, "containerStatuses": [{"state": state}]},
    }


EXEC = {"verb": "exec", "labels": {"app": "geo"}, "argv": ["true"]}
VOLUME = {"kind": "PersistentVolume", "metadata": {"name": "geo-pv"}}


def test_a_command_runs_in_the_newest_pod_that_is_there_to_stay() -> None:
    pods = [pod("new", 5), pod("old", 1), pod("failed", 7, phase="Failed"), pod("leaving", 9, **DELETED)]
    subject = Objects(*pods)
    subject.execute(EXEC)
    assert subject.done == [("new", "true")]


def test_a_command_is_tried_again_until_the_container_runs() -> None:
    subject = Objects(pod("geo-1"))
    subject.failing = 3
    subject.execute(EXEC)
    assert subject.done == [("geo-1", "true")]


def test_a_command_without_a_pod_fails_once_patience_ends() -> None:
    subject = Objects()
    subject.timeout_s = 0.0
    with pytest.raises(PlatformError, match="no pod carries the labels"):
        subject.execute(EXEC)


def test_an_object_that_exists_is_left_as_it_is() -> None:
    subject = Objects(VOLUME)
    subject.execute({"verb": "apply", "object": {**VOLUME, "spec": {}}})
    assert subject.objects["PersistentVolume", "geo-pv"] is VOLUME


def service(address: str, **ports: int) -> Object:
    return {"kind": "Service", "metadata": {"name": "geo"}, "spec": {"clusterIP": address, **ports}}


def test_an_object_that_was_made_again_with_another_content_gets_the_former_one() -> None:
    subject = Objects(service("10.0.0.2", port=1, second=2))
    subject.execute({"verb": "apply", "object": service("10.0.0.1", port=9)})
    assert subject.done == [("Service", "geo", {"spec": {"port": 9, "second": None}})]


def test_an_object_that_cannot_get_its_former_content_is_replaced() -> None:
    subject = Objects(service("10.0.0.2", port=1))
    subject.immutable = {"Service"}
    subject.execute({"verb": "apply", "object": service("10.0.0.1", port=9)})
    assert subject.objects["Service", "geo"] == service("10.0.0.1", port=9)


def test_an_object_that_is_being_deleted_is_waited_for_and_created_again() -> None:
    leaving = {"kind": "Service", "metadata": {"name": "geo", **DELETED}}
    subject = Objects(leaving)
    subject.execute({"verb": "apply", "object": {"kind": "Service", "metadata": {"name": "geo"}}})
    assert subject.objects["Service", "geo"]["metadata"] == {"name": "geo"}


def test_an_object_that_never_goes_is_an_error() -> None:
    subject = Objects({"kind": "Service", "metadata": {"name": "geo", **DELETED}})
    subject.timeout_s, subject.looks = 0.0, -1000
    with pytest.raises(PlatformError, match='Service "geo" is still being deleted'):
        subject.execute({"verb": "apply", "object": {"kind": "Service", "metadata": {"name": "geo"}}})


def test_a_pod_that_is_gone_needs_no_patch_but_anything_else_does() -> None:
    subject = Objects()
    subject.execute({"verb": "patch", "kind": "Pod", "name": "geo-1", "change": {}})
    with pytest.raises(ObjectNotFound):
        subject.execute({"verb": "patch", "kind": "Service", "name": "geo", "change": {}})


def test_a_released_volume_has_no_claim() -> None:
    subject = Objects(VOLUME)
    subject.execute({"verb": "release-claim", "volume": "geo-pv"})
    assert subject.done == [("PersistentVolume", "geo-pv", {"spec": {"claimRef": None}})]


def test_an_act_of_a_later_release_is_refused() -> None:
    with pytest.raises(PlatformError, match="'dance' that this release does not know"):
        Objects().execute({"verb": "dance"})


def test_only_pods_in_question_that_wait_in_a_back_off_are_replaced() -> None:
    waiting = [pod("a", reason="CrashLoopBackOff"), pod("b", reason="ImagePullBackOff")]
    subject = Objects(*waiting, pod("c"), pod("d", reason="ContainerCreating"))
    subject.restart_waiting(lambda one: one["metadata"]["name"] != "b")
    assert subject.done == ["a"]


def test_a_pod_without_containers_or_with_an_empty_state_does_not_wait() -> None:
    assert not waits_in_back_off({"metadata": {}})
    assert not waits_in_back_off({"status": {"containerStatuses": [{"state": {"waiting": None}}]}})


def secret(name: str, **data: str) -> Object:
    return {"kind": "Secret", "metadata": {"name": name}, "data": data}


def test_a_secrets_text_comes_back_from_another_secret() -> None:
    objects = Objects(secret("clients", shop="wrong"), secret("store", application="right"))
    (undo,) = undo_of_secret(SecretKey("clients", "shop"), SecretKey("store", "application"))
    assert "right" not in str(undo)
    objects.execute(undo)
    assert objects.done == [("Secret", "clients", {"data": {"shop": "right"}})]
    with pytest.raises(PlatformError, match="Secret gone has no key application"):
        objects.execute({**undo, "from": ["gone", "application"]})
