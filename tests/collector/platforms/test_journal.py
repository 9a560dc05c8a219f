"""The journal, the verbs that write to it, and the undo."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.base import NotSupported, Platform
from faultset.collector.platforms.impairments import Impairment, Partition
from faultset.collector.platforms.journal import Journal, JournaledObjects, reverse_change, undo_of_delete
from faultset.collector.platforms.objects import ObjectNotFound, merge, waits_in_back_off
from faultset.core.errors import PlatformError
from faultset.core.files import read_json_lines
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

OBJECT = {"spec": {"replicas": 1, "selector": {"a": "b"}, "ports": [{"port": 1}]}, "metadata": {"labels": {}}}


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"replicas": 0}},
        {"spec": {"ports": [{"port": 2}, {"port": 3}]}},
        {"spec": {"nodeSelector": {"host": "x"}}},
        {"spec": {"selector": None}},
        {"spec": {"selector": {"a": None, "c": "d"}}},
        {"metadata": {"annotations": {"x": "y"}}, "spec": {"replicas": 3}},
        {"spec": "not a mapping any more"},
    ],
)
def test_the_inverse_of_a_merge_patch_brings_the_object_back(change: dict) -> None:
    after = merge(OBJECT, change)
    assert after != OBJECT
    assert merge(after, reverse_change(OBJECT, change)) == OBJECT


def test_merge_changes_neither_argument() -> None:
    change = {"spec": {"selector": {"c": "d"}}}
    merge(OBJECT, change)
    assert OBJECT["spec"]["selector"] == {"a": "b"}
    assert change == {"spec": {"selector": {"c": "d"}}}


def test_a_deleted_claim_comes_back_after_its_volume_was_released() -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "geo-pvc", "uid": "u1", "resourceVersion": "5"},
        "spec": {"volumeName": "geo-pv"},
        "status": {"phase": "Bound"},
    }
    release, apply = undo_of_delete(claim)
    assert release == {"verb": "release-claim", "volume": "geo-pv"}
    assert apply["object"]["metadata"] == {"name": "geo-pvc"}
    assert "status" not in apply["object"]


def test_a_journal_read_again_after_a_crash_knows_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    with journal.operation("patch", {}, [{"verb": "patch", "name": "one"}]):
        pass
    path.write_bytes(path.read_bytes() + b'{"seq": 9, "sta')
    again = Journal(path)
    assert [seq for seq, _ in again.open_undo_operations()] == [1]
    assert len(read_json_lines(path)) == 2


def test_discarded_records_leave_open_operations_in_memory_and_all_lines_in_the_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    inverse: list[dict[str, Any]] = [{"verb": "patch", "name": "one"}]
    with journal.operation("patch", {}, inverse) as undone, journal.scope("later"):
        journal.note("decoy")
    with journal.scope("incident"), journal.operation("patch", {}, inverse) as still_open:
        pass
    journal.mark_undone(undone)
    written = len(journal.records)
    journal.note("after the chunk")
    assert journal.discard(written) == 1
    assert [record["verb"] for record in journal.records] == ["patch", "after the chunk"]
    assert [seq for seq, _ in journal.open_undo_operations("incident")] == [still_open]
    journal.mark_undone(still_open)
    assert journal.discard(len(journal.records)) == 0
    assert len(read_json_lines(tmp_path / "j")) == written + 2


DELETED = {"deletionTimestamp": "2026-01-01T00:00:09Z"}


class Objects(JournaledObjects):
    """Objects in memory; a deleted object disappears after a few reads."""

    undo_timeout_s, undo_pause_s = 5.0, 0.0

    def __init__(self, *objects: Object, journal: Journal | None = None):
        super().__init__(load_app("hotel"), journal or Journal(Path(os.devnull), durable=False))
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.looks = 0
        self.done: list[Any] = []
        self.failing = 0
        self.immutable: set[str] = set()
        self.spared: set[str] = set()

    def find(self, kind: str, name: str) -> Object | None:
        self.looks += 1
        found = self.objects.get((kind, name))
        if found and found["metadata"].get("deletionTimestamp") and self.looks > 2:
            del self.objects[kind, name]
        return found

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return [one for (found, _), one in self.objects.items() if found == kind]

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        if self.failing:
            self.failing -= 1
            raise PlatformError("the container does not run yet")
        self.done.append((pod, *argv))
        return ""

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        key = manifest["kind"], manifest["metadata"]["name"]
        is_new = key not in self.objects
        self.objects.setdefault(key, dict(manifest))
        return is_new

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        if (kind, name) not in self.objects:
            raise ObjectNotFound(f"no {kind} {name}")
        if kind in self.immutable:
            raise PlatformError(f"{kind} {name} is invalid: field is immutable")
        self.done.append((kind, name, change))

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        if self.objects.pop((kind, name), None) is None:
            raise ObjectNotFound(f"no {kind} {name}")
        self.done.append(name)

    def _kill(self, pod: Object, container: str) -> None:
        self.done.append(("kill", container))

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        self.done.append(impairment)

    def _lift(self, pod: str) -> None:
        self.done.append(pod)

    def _belongs_to_app(self, pod: Object) -> bool:
        return pod["metadata"]["name"] not in self.spared


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
    subject.execute_undo(EXEC)
    assert subject.done == [("new", "true")]


def test_a_command_is_tried_again_until_the_container_runs() -> None:
    subject = Objects(pod("geo-1"))
    subject.failing = 3
    subject.execute_undo(EXEC)
    assert subject.done == [("geo-1", "true")]


def test_a_command_without_a_pod_fails_once_patience_ends() -> None:
    subject = Objects()
    subject.undo_timeout_s = 0.0
    with pytest.raises(PlatformError, match="no pod has the labels"):
        subject.execute_undo(EXEC)


def test_an_object_that_exists_is_left_as_it_is() -> None:
    subject = Objects(VOLUME)
    subject.execute_undo({"verb": "apply", "object": {**VOLUME, "spec": {}}})
    assert subject.objects["PersistentVolume", "geo-pv"] is VOLUME


def service(address: str, **ports: int) -> Object:
    return {"kind": "Service", "metadata": {"name": "geo"}, "spec": {"clusterIP": address, **ports}}


def test_an_object_that_was_made_again_with_another_content_gets_the_former_one() -> None:
    subject = Objects(service("10.0.0.2", port=1, second=2))
    subject.execute_undo({"verb": "apply", "object": service("10.0.0.1", port=9)})
    assert subject.done == [("Service", "geo", {"spec": {"port": 9, "second": None}})]


def test_an_object_that_cannot_get_its_former_content_is_replaced() -> None:
    subject = Objects(service("10.0.0.2", port=1))
    subject.immutable = {"Service"}
    subject.execute_undo({"verb": "apply", "object": service("10.0.0.1", port=9)})
    assert subject.objects["Service", "geo"] == service("10.0.0.1", port=9)


def test_an_object_that_is_being_deleted_is_waited_for_and_created_again() -> None:
    leaving = {"kind": "Service", "metadata": {"name": "geo", **DELETED}}
    subject = Objects(leaving)
    subject.execute_undo({"verb": "apply", "object": {"kind": "Service", "metadata": {"name": "geo"}}})
    assert subject.objects["Service", "geo"]["metadata"] == {"name": "geo"}


def test_an_object_that_never_goes_is_an_error() -> None:
    subject = Objects({"kind": "Service", "metadata": {"name": "geo", **DELETED}})
    subject.undo_timeout_s, subject.looks = 0.0, -1000
    with pytest.raises(PlatformError, match='Service "geo" is still being deleted'):
        subject.execute_undo({"verb": "apply", "object": {"kind": "Service", "metadata": {"name": "geo"}}})


def test_a_pod_that_is_gone_needs_no_patch_but_anything_else_does() -> None:
    subject = Objects()
    subject.execute_undo({"verb": "patch", "kind": "Pod", "name": "geo-1", "change": {}})
    with pytest.raises(ObjectNotFound):
        subject.execute_undo({"verb": "patch", "kind": "Service", "name": "geo", "change": {}})


def test_a_released_volume_has_no_claim() -> None:
    subject = Objects(VOLUME)
    subject.execute_undo({"verb": "release-claim", "volume": "geo-pv"})
    assert subject.done == [("PersistentVolume", "geo-pv", {"spec": {"claimRef": None}})]


def test_an_act_of_a_later_release_is_refused() -> None:
    with pytest.raises(PlatformError, match="unknown undo operation 'dance' in the journal"):
        Objects().execute_undo({"verb": "dance"})


def test_only_pods_in_question_that_wait_in_a_back_off_are_replaced() -> None:
    waiting = [pod("a", reason="CrashLoopBackOff"), pod("b", reason="ImagePullBackOff")]
    subject = Objects(*waiting, pod("c"), pod("d", reason="ContainerCreating"))
    subject.spared = {"b"}
    subject.undo()
    assert subject.done == ["a"]


def test_a_pod_without_containers_or_with_an_empty_state_does_not_wait() -> None:
    assert not waits_in_back_off({"metadata": {}})
    assert not waits_in_back_off({"status": {"containerStatuses": [{"state": {"waiting": None}}]}})


def secret(name: str, **data: str) -> Object:
    return {"kind": "Secret", "metadata": {"name": name}, "data": data}


def test_a_secrets_text_comes_back_from_another_secret() -> None:
    objects = Objects(secret("clients", shop="wrong"), secret("store", application="right"))
    undo = {"verb": "copy-secret", "name": "clients", "key": "shop", "from": ["store", "application"]}
    objects.execute_undo(undo)
    assert objects.done == [("Secret", "clients", {"data": {"shop": "right"}})]
    with pytest.raises(PlatformError, match="Secret gone has no key application"):
        objects.execute_undo({**undo, "from": ["gone", "application"]})


def patch_of(name: str) -> dict[str, Any]:
    return {"verb": "patch", "kind": "Service", "name": name, "change": {}}


def services(*names: str) -> list[Object]:
    return [{"kind": "Service", "metadata": {"name": name}} for name in names]


def test_what_was_begun_is_undone_newest_first_even_when_the_act_never_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    for name in ("one", "two"):
        with journal.operation("patch", {}, [patch_of(name)]):
            pass
    with pytest.raises(RuntimeError), journal.operation("patch", {}, [patch_of("three")]):
        raise RuntimeError("torn")
    subject = Objects(*services("one", "two", "three"), journal=journal)
    subject.undo()
    assert [name for _, name, _ in subject.done] == ["three", "two", "one"]
    subject.undo()
    assert len(subject.done) == 3


def test_one_failing_undo_does_not_keep_the_others_and_stays_open(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    for name in ("one", "two"):
        with journal.operation("patch", {}, [patch_of(name)]):
            pass
    subject = Objects(*services("one"), journal=journal)
    with pytest.raises(PlatformError, match="faultset recover"):
        subject.undo()
    assert [name for _, name, _ in subject.done] == ["one"]
    assert [seq for seq, _ in journal.open_undo_operations()] == [2]


def test_a_base_platform_refuses_what_it_cannot_do_in_a_sentence() -> None:
    attempts: dict[str, Callable[[Platform], Any]] = {
        "run commands in pods": lambda platform: Platform.exec(platform, "geo-1", ["true"]),
        "kill containers": lambda platform: Platform.kill(platform, "geo-1"),
        "impair networks": lambda platform: Platform.impair(platform, "geo-1", Partition()),
    }
    plain = Mock(spec=Platform, _refuse=lambda *args: Platform._refuse(plain, *args))
    plain.name = "plain"
    for what, attempt in attempts.items():
        with pytest.raises(NotSupported, match=f"platform plain cannot {what}; the fault must declare"):
            attempt(plain)
