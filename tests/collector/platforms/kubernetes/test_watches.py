"""What watches make of what a cluster sends, with gaps and repetitions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.kubernetes.client import Expired
from faultset.collector.platforms.kubernetes.watches import LogStreams, Observer, Watch

HOTEL = load_app("hotel")


class FakeObjects:
    """Scripted lists and watches."""

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[Any]):
        self.lists, self.watches, self.namespace = lists, watches, "hotel-1"

    def list_with_version(self, kind: str) -> tuple[list[dict[str, Any]], str]:
        return (self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]), "7"

    def watch(self, kind: str, version: str) -> Iterator[bytes]:
        if not self.watches:
            time.sleep(0.02)
            return
        for message in self.watches.pop(0):
            if isinstance(message, Exception):
                raise message
            yield json.dumps(message).encode()

    def contains(self, found: dict[str, Any]) -> bool:
        return True

    def to_manifest(self, found: dict[str, Any]) -> dict[str, Any]:
        return found


def pod(name: str, version: str = "8") -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": version, "labels": {}}}


def until(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def test_a_watch_that_is_too_old_lists_again_and_tells_what_has_gone_meanwhile() -> None:
    told: list[tuple[str, bool]] = []
    objects = FakeObjects(
        [[pod("a"), pod("b")], [pod("b"), pod("c")]], [[{"type": "ADDED", "object": pod("d")}], [Expired("too old")]]
    )
    watch = Watch(objects, "Pod", lambda kind, name, found: told.append((name, found is not None)))  # type: ignore[arg-type]
    until(lambda: ("c", True) in told)
    watch.end()
    assert told[:3] == [("a", True), ("b", True), ("d", True)]
    assert {("a", False), ("d", False)} <= set(told[3:])
    assert ("b", False) not in told


def test_a_lost_connection_is_resumed_without_a_word() -> None:
    told: list[str] = []
    objects = FakeObjects([[]], [[{"type": "ADDED", "object": pod("a")}], [{"type": "ADDED", "object": pod("b")}]])
    watch = Watch(objects, "Pod", lambda kind, name, found: told.append(name))  # type: ignore[arg-type]
    until(lambda: told == ["a", "b"])
    assert watch.failure == ""
    watch.end()


def event(name: str, count: int, **more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "geo-6d9c8b7f4-x2k4f", "namespace": "hotel-1"}
    made = {"metadata": {"name": name, "resourceVersion": "9"}, "involvedObject": about, "count": count}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 100))
    return {**made, "type": "Warning", "reason": "BackOff", "message": " again ", "lastTimestamp": stamp, **more}


@pytest.fixture
def observer() -> Observer:
    return Observer(
        FakeObjects([[]], []),  # type: ignore[arg-type]
        label_key=HOTEL.label_key,
        services=frozenset(HOTEL.services),
        pod_changed=lambda pod: None,
    )


def test_an_event_counts_once_each_time_it_grows(observer: Observer) -> None:
    for count in (1, 1, 2, 2, 3):
        observer._event_changed("Event", "e", event("e", count))
    assert [seen.count for seen in observer.events] == [1, 2, 3]
    assert {(seen.service, seen.message) for seen in observer.events} == {("geo", "again")}


def test_an_event_about_an_object_never_seen_belongs_to_the_service_of_the_longest_name(observer: Observer) -> None:
    about = {"kind": "Pod", "name": "mongodb-geo-6d9c8b7f4-x2k4f"}
    observer._event_changed("Event", "e", event("e", 1, involvedObject=about))
    about = {"kind": "Node", "name": "node-1"}
    observer._event_changed("Event", "f", event("f", 1, involvedObject=about))
    assert [seen.service for seen in observer.events] == ["mongodb-geo", None]


def test_events_about_objects_of_chaos_mesh_are_in_no_view(observer: Observer) -> None:
    about = {"kind": "PodNetworkChaos", "name": "geo-6d9c8b7f4-x2k4f", "apiVersion": "chaos-mesh.org/v1alpha1"}
    observer._event_changed("Event", "e", event("e", 1, involvedObject=about))
    assert observer.events == []


def test_an_old_event_keeps_its_stamp_and_a_new_one_gets_the_finer_time_of_arrival(observer: Observer) -> None:
    observer._event_changed("Event", "old", event("old", 1))
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    observer._event_changed("Event", "new", event("new", 1, lastTimestamp=stamp))
    fine = "2026-01-02T03:04:05.678901Z"
    observer._event_changed("Event", "fine", event("fine", 1, eventTime=fine, lastTimestamp=None))
    old, new, exact = (seen.time_ns for seen in observer.events)
    assert old % 10**9 == 0
    assert abs(new / 1e9 - now) < 2
    assert exact == 1767323045678901000


class FakeLogs:
    """An API with the logs of one container that has run twice."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.connections = [
            [b"2026-01-01T00:00:00.000000001Z one", b"2026-01-01T00:00:00.500000000Z two"],
            [b"2026-01-01T00:00:00.500000000Z two", b"2026-01-01T00:00:00.500000001Z three"],
        ]

    def stream(self, path: str, query: dict[str, Any]) -> Iterator[bytes]:
        self.asked.append(dict(query))
        if self.connections:
            yield from self.connections.pop(0)
        else:
            time.sleep(0.02)

    def get(self, path: str) -> dict[str, Any]:
        status = {"name": "main", "restartCount": 0, "state": {"running": {}}}
        return {"status": {"containerStatuses": [status]}}


def test_lines_that_a_second_connection_repeats_are_written_once(tmp_path: Path) -> None:
    api = FakeLogs()
    streams = LogStreams(api, "hotel-1", tmp_path)  # type: ignore[arg-type]
    status = {"name": "main", "restartCount": 0, "state": {"running": {}}}
    streams.pod_changed({"metadata": {"name": "geo-1"}, "status": {"containerStatuses": [status]}})
    path = tmp_path / "geo-1" / "main" / "0.log"
    until(lambda: path.exists() and path.read_text().count("\n") == 3)
    streams.stop()
    assert [line.rpartition(" ")[2] for line in path.read_text().splitlines()] == ["one", "two", "three"]
    assert api.asked[1]["sinceTime"] == "2026-01-01T00:00:00.500000000Z"


def test_a_container_that_waits_in_a_back_off_has_its_last_run_read(tmp_path: Path) -> None:
    api = FakeLogs()
    streams = LogStreams(api, "hotel-1", tmp_path)  # type: ignore[arg-type]
    status = {
        "name": "main",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 2}},
    }
    streams.pod_changed({"metadata": {"name": "geo-1"}, "status": {"containerStatuses": [status]}})
    path = tmp_path / "geo-1" / "main" / "2.log"
    until(lambda: path.exists() and path.read_text().count("\n") == 2)
    streams.stop()
    assert api.asked[0]["previous"] is True
