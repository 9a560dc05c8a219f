"""Waiting until a service can be reached."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from faultset.collector.runtime.http.waiting import main, wait_for


def test_waiting_ends_when_somebody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text("{}")
    monkeypatch.setenv("FAULTSET_HOSTS", str(hosts))
    monkeypatch.setenv("POD_IP", "127.0.0.1")

    async def run(server: socket.socket) -> None:
        port = server.getsockname()[1]
        waiting = asyncio.create_task(wait_for("db", port, pause_s=0.01))
        await asyncio.sleep(0.03)
        hosts.write_text(json.dumps({"db": "127.0.0.1"}))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        server.listen()
        await asyncio.wait_for(waiting, 5)

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        asyncio.run(run(server))
    assert set(capsys.readouterr().out.splitlines()) == {"waiting for db"}


def test_what_is_no_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db"]) == 2
    assert "SERVICE:PORT" in capsys.readouterr().err
