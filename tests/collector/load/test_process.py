"""The load as a process against real servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from closed_ports import closed_port

from faultset.collector.apps import load_app
from faultset.collector.ipc.channel import Channel, Message, decode, encode
from faultset.collector.load.episode_load import BeginLoad, ChangeLoad, LoadStatistics, ReadStatistics, StopLoad
from faultset.collector.load.results import OUTCOMES, read_results
from faultset.collector.load.traffic import CONSTANT_TRAFFIC
from faultset.collector.spec.files import format_spec


class Answering(ThreadingHTTPServer):
    """Answers searches, refuses logins with 500 and never answers recommendations."""

    daemon_threads = True

    def __init__(self) -> None:
        self.clients: set[str] = set()
        self.queries: list[str] = []
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about clients that leave without waiting."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Answering)
        server.clients.add(self.client_address[0])
        server.queries.append(f"{self.command} {self.path}")
        if self.path.startswith("/recommendations"):
            server.released.wait()
        self.send_response(500 if self.path.startswith("/user") else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Answering]:
    made = Answering()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.released.set()
    made.shutdown()
    made.server_close()
    thread.join()


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "app.yaml").write_text(format_spec(load_app("hotel")))

    def run(target: str, *more: str, rate: float = 200.0) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "faultset.collector.load", "--app", str(tmp_path / "app.yaml")]
        argv += ["--mix", "default", "--rate", str(rate), "--seed", "3", "--target", target]
        argv += ["--results", str(tmp_path / "results"), "--socket", str(tmp_path / "s"), *more]
        folders = [str(Path(__file__).parents[3] / part) for part in ("collector", "datasets")]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders)}
        started.append(subprocess.Popen(argv, env=environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def outcomes(path: Path) -> dict[str, Counter[str]]:
    endpoints, records = read_results(path)
    found: dict[str, Counter[str]] = {}
    for record in records:
        found.setdefault(endpoints[record["endpoint"]], Counter())[OUTCOMES[record["outcome"]]] += 1
    return found


def test_each_answer_has_its_outcome_and_stop_leaves_the_rest_unfinished(
    tmp_path: Path, server: Answering, start: Start
) -> None:
    process = start(f"http://127.0.0.1:{server.server_port}", "--bind", "127.0.0.9")
    channel = Channel(tmp_path / "s")
    wait(lambda: len(server.queries) > 60)
    assert channel.call(ChangeLoad(factor=2.0)) == 2.0
    wait(lambda: len(server.queries) > 120)
    assert channel.call(ReadStatistics()).in_flight > 0
    counts = channel.call(StopLoad())
    channel.close()
    assert process.wait(timeout=10) == 0

    found = outcomes(tmp_path / "results")
    assert set(found["GET /hotels"]) <= {"ok", "unfinished"}
    assert found["GET /hotels"]["ok"] > 20
    assert set(found["POST /user"]) <= {"http_error", "unfinished"}
    assert set(found["GET /recommendations"]) == {"unfinished"}
    assert sum(sum(counter.values()) for counter in found.values()) == counts.sent
    assert counts.outcomes["ok"] == sum(counter["ok"] for counter in found.values())
    assert server.clients == {"127.0.0.9"}
    records = read_results(tmp_path / "results")[1]
    done = records[records["latency"] >= 0]
    assert (done["latency"] >= done["sent"] - done["scheduled"]).all()


def test_a_kill_loses_no_request_that_was_sent(tmp_path: Path, server: Answering, start: Start) -> None:
    process = start(f"http://127.0.0.1:{server.server_port}")
    wait(lambda: len(server.queries) > 50)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = outcomes(tmp_path / "results")
    assert found["GET /recommendations"]["unfinished"] > 5
    assert found["GET /hotels"]["ok"] > 10


def test_nobody_listening_is_refused(tmp_path: Path, start: Start) -> None:
    with closed_port() as port:
        process = start(f"http://127.0.0.1:{port}")
        wait(lambda: len(read_results(tmp_path / "results")[1]) > 20)
        process.terminate()
        assert process.wait(timeout=10) == 0
    total = sum(outcomes(tmp_path / "results").values(), Counter())
    assert set(total) <= {"refused", "unfinished"}
    assert total["refused"] > 10


def test_a_load_in_a_pod_begins_once_when_it_is_told_and_keeps_its_results(
    tmp_path: Path, server: Answering, start: Start
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    process = start(f"http://127.0.0.1:{server.server_port}", "--http", str(port))
    url = f"http://127.0.0.1:{port}"
    order = BeginLoad(mix="default", rate_rps=200.0, seed=3, traffic=CONSTANT_TRAFFIC.to_json())

    def ask(path: str, message: Message | None = None) -> requests.Response:
        body = None if message is None else encode(message)
        return requests.post(url + path, data=body, timeout=10)

    wait(lambda: _answers(url))
    assert not server.queries
    assert (ask("/step", ChangeLoad(factor=2.0)).status_code, ask("/stop").status_code) == (400, 400)
    refused = ask("/begin", replace(order, rate_rps=0.0))
    assert (refused.status_code, refused.text) == (400, "the rate must be above zero, but is 0")
    assert [ask("/begin", order).status_code for _ in range(2)] == [200, 200]
    assert ask("/begin", replace(order, seed=4)).status_code == 400
    wait(lambda: len(server.queries) > 40)
    counts = [decode(LoadStatistics, ask("/stop").content) for _ in range(2)]
    assert counts[0].sent == counts[1].sent > 40
    whole = requests.get(f"{url}/results", timeout=10).content
    assert requests.get(f"{url}/results?offset=30", timeout=10).content == whole[30:]
    assert whole == (tmp_path / "results").read_bytes()
    process.terminate()
    assert process.wait(timeout=10) == 0


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/stats", timeout=10).status_code == 400
    except requests.ConnectionError:
        return False


def test_an_unknown_mix_is_told_by_name(tmp_path: Path, start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    process = start("http://127.0.0.1:9", "--mix", "standart")
    assert process.wait(timeout=30) == 2
    assert 'did you mean "standard"?' in capfd.readouterr().err
