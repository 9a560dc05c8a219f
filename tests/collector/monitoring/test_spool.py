"""Answers are requested once, at no more than the configured rate, and kept only if they are complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.monitoring.spool import RateLimiter, Spool, SpooledEndpoint
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, TruncatedResponse
from faultset.core.errors import UsageError


class _Server(Endpoint):
    name = "a server"

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = list(bodies)

    def body(self, path: str, params: Any = None) -> bytes:
        return self.bodies.pop(0)


def test_requests_are_never_closer_than_the_rate_allows() -> None:
    now_s, times_s = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    pace = RateLimiter(4.0, clock=lambda: now_s, sleep=sleep)
    for work_s in (0.0, 0.1, 0.0, 1.0, 0.0, 0.0):
        now_s += work_s
        pace()
        times_s.append(now_s)
    assert times_s == [0.0, 0.25, 0.5, 1.5, 1.75, 2.0]


def test_a_saved_answer_is_not_requested_again(spool: Spool) -> None:
    SpooledEndpoint(_Server(b'{"data":[1]}'), spool).body("/api/traces", {"service": "a"})
    again = Spool(spool.folder, {"request": 1})
    assert SpooledEndpoint(_Server(), again).get("/api/traces", {"service": "a"}) == {"data": [1]}
    assert (again.requested, again.reused) == (0, 1)


def test_requests_differ_by_server_path_and_parameters(spool: Spool) -> None:
    endpoint = SpooledEndpoint(_Server(b"[1]", b"[2]", b"[3]"), spool)
    requests = (("/a", {"x": "1"}), ("/a", {"x": "2"}), ("/b", {"x": "1"}))
    assert [endpoint.get(path, params) for path, params in requests] == [[1], [2], [3]]


@pytest.mark.parametrize(
    "body",
    [b'{"status":"error","error":"busy"}', b'{"status":"success","warnings":["partial"]}', b'{"errors":[{"msg":"x"}]}'],
    ids=["error", "partial", "errors"],
)
def test_refusals_and_partial_answers_are_requested_again(spool: Spool, body: bytes) -> None:
    endpoint = SpooledEndpoint(_Server(body, b'{"data":[]}'), spool)
    assert endpoint.body("/api/traces") == body
    assert endpoint.get("/api/traces") == {"data": []}


def test_half_an_answer_is_not_kept(spool: Spool) -> None:
    endpoint = SpooledEndpoint(_Server(b'{"data":[{"traceID":', b'{"data":[]}'), spool)
    with pytest.raises(TruncatedResponse, match="incomplete JSON"):
        endpoint.body("/api/traces")
    assert endpoint.get("/api/traces") == {"data": []}


def test_empty_answers_and_those_at_their_limit_do_not_count_as_data(spool: Spool) -> None:
    traces = [{"traceID": "1"}, {"traceID": "2"}]
    bodies = [json.dumps({"data": traces[:count]}).encode() for count in (2, 1, 0)]
    endpoint = SpooledEndpoint(_Server(*bodies), spool)
    for end in ("9", "5", "1"):
        endpoint.body("/api/traces", {"limit": "2", "end": end})
    assert [folder.name for folder in spool.data_folders] == ["traces"]
    assert len(list((spool.folder / "traces").iterdir())) == 1


def test_answers_to_another_request_are_refused(spool: Spool) -> None:
    with pytest.raises(UsageError, match="responses to another request"):
        Spool(spool.folder, {"request": 2})


def test_a_kill_leaves_whole_answers(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:3])
        raise SystemExit

    monkeypatch.setattr(Path, "write_bytes", die)
    with pytest.raises(SystemExit):
        SpooledEndpoint(_Server(b'{"data":[]}'), spool).body("/api/traces")
    monkeypatch.undo()
    assert SpooledEndpoint(_Server(b'{"data":[2]}'), spool).get("/api/traces") == {"data": [2]}
