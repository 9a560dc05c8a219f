"""What log streams write of what a cluster sends, with repetitions and restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from faultset.collector.platforms.kubernetes.watch.log_streams import LogStreams


def until(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


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
