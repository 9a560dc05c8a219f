"""Parts of the service runtime on their own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest
from aiohttp import web

from faultset.collector.runtime.builds import GOOD, LEAKING, MISDIALLING, defects
from faultset.collector.runtime.environment import environment
from faultset.collector.runtime.expressions import getter, go_list
from faultset.collector.runtime.http.connections import Connections
from faultset.collector.runtime.http.names import Names, UnknownHostError, dial_error
from faultset.collector.runtime.http.status import Code, RpcError, http_status, response_class
from faultset.collector.runtime.operations import burn
from faultset.collector.runtime.signals.logs import Log
from faultset.collector.runtime.signals.tracing import Tracing, headers_of
from faultset.collector.runtime.stores import server as store
from faultset.core.errors import PlatformError


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("$a", 1),
        ("$b.c", [2, 3]),
        ("$b.missing.deep", None),
        ("$nothing", None),
        ("plain", "plain"),
        ({"x": "$a", "y": ["$a", 5]}, {"x": 1, "y": [1, 5]}),
        ({"each": "$b.c", "value": {"n": "$item", "a": "$a"}}, [{"n": 2, "a": 1}, {"n": 3, "a": 1}]),
        ({"each": "$nothing", "value": "$item"}, []),
    ],
)
def test_templates_are_filled_in(template: Any, value: Any) -> None:
    assert getter(template)({"a": 1, "b": {"c": [2, 3]}}) == value


def test_lists_are_written_as_go_writes_them() -> None:
    assert go_list(["1", "2"]) == "[1 2]"


def test_work_uses_the_cpu_time_it_is_told() -> None:
    before = time.thread_time()
    burn(3.0)
    assert time.thread_time() - before >= 0.003


def test_codes_have_grpcs_texts_classes_and_a_status() -> None:
    assert str(RpcError(Code.UNAVAILABLE, "gone")) == "rpc error: code = Unavailable desc = gone"
    assert [response_class(code) for code in (Code.OK, Code.UNKNOWN, Code.CANCELED, Code.UNAVAILABLE)] == [
        "2xx",
        "0xx",
        "4xx",
        "5xx",
    ]
    assert http_status(Code.UNIMPLEMENTED) == 501


def test_dial_errors_have_gos_texts() -> None:
    where = "10.0.0.1:80"
    assert dial_error(ConnectionRefusedError(), where) == "dial tcp 10.0.0.1:80: connect: connection refused"
    assert dial_error(TimeoutError(), where) == "dial tcp 10.0.0.1:80: i/o timeout"
    assert dial_error(OSError(113, "No route to host"), where) == "dial tcp 10.0.0.1:80: connect: no route to host"
    unknown = UnknownHostError("lookup x: no such host")
    assert dial_error(unknown, where) == "dial tcp: lookup x: no such host"


def test_the_hosts_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"

    async def look_up() -> list[str]:
        names, found = Names(str(hosts)), []
        for known in ({"geo": "127.0.0.2"}, {"geo": "127.0.0.3"}):
            draft = tmp_path / "draft"
            draft.write_text(json.dumps(known))
            draft.rename(hosts)
            found.append(await names.address("geo"))
        with pytest.raises(UnknownHostError, match="lookup rate: no such host"):
            await names.address("rate")
        return found

    assert asyncio.run(look_up()) == ["127.0.0.2", "127.0.0.3"]


def test_without_a_hosts_file_addresses_are_themselves_and_names_are_asked_of_dns() -> None:
    async def look_up() -> tuple[str, str]:
        names = Names(None)
        return await names.address("127.0.0.4"), await names.address("localhost")

    assert asyncio.run(look_up()) == ("127.0.0.4", "127.0.0.1")


def test_connections_take_no_new_request_past_their_age() -> None:
    async def ask() -> list[int]:
        ports: list[int] = []

        async def handle(request: web.BaseRequest) -> web.Response:
            assert request.transport is not None
            ports.append(request.transport.get_extra_info("peername")[1])
            return web.Response()

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        pool = Connections(local="127.0.0.6", resolver=None, timeout=aiohttp.ClientTimeout(), max_age_s=60.0)

        async def get() -> None:
            async with pool.session() as session, session.get(f"http://127.0.0.1:{port}/") as response:
                await response.read()

        pool._current.born = asyncio.get_running_loop().time()
        await get()
        await get()
        pool._current.born -= 61.0
        await get()
        await pool.close()
        await runner.cleanup()
        return ports

    first, second, third = asyncio.run(ask())
    assert first == second
    assert second != third


class Ended(Exception):
    pass


def end(code: int) -> NoReturn:
    raise Ended(code)


def test_log_lines_have_the_shape_of_the_console_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    output = os.open(path, os.O_WRONLY | os.O_CREAT)
    log = Log("info", end=end, output=output)
    log.trace("a.go:1", "hidden")
    log.warning("a.go:2", "seen")
    with pytest.raises(Ended, match="1"):
        log.fatal("a.go:3", "no more")
    os.close(output)
    stamped = [line.partition(" ") for line in path.read_text().splitlines()]
    assert [rest for _, _, rest in stamped] == ["WRN a.go:2 > seen", "FTL a.go:3 > no more"]
    assert len(stamped[0][0]) == len("2026-01-01T00:00:00.000Z")


def test_a_panic_dumps_goroutines_and_ends_with_2(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended, match="2"):
        Log(end=end).panic("cmd/geo/main.go:9", "no reachable servers")
    out, err = capfd.readouterr()
    assert out.endswith(" PNC cmd/geo/main.go:9 > no reachable servers\n")
    assert err.startswith("panic: no reachable servers\n\ngoroutine ")
    assert "/workspace/cmd/geo/main.go:9" in err


def test_tags_are_good_or_have_one_defect() -> None:
    assert not GOOD & (set(MISDIALLING) | set(LEAKING))
    assert not set(MISDIALLING) & set(LEAKING)
    assert defects("1.0.0") == defects("9.9.9")
    assert all(defects(tag).database_port == port != 27017 for tag, port in MISDIALLING.items())
    assert all(defects(tag).leak_mib_s == rate > 0 for tag, rate in LEAKING.items())


def test_the_environment_is_read_when_asked() -> None:
    told = environment({"POD_IP": "127.1.2.3", "POD_NAME": "geo-1", "FAULTSET_BUILD": "1.1.0"})
    assert (told.address, told.pod, told.build, told.spec) == ("127.1.2.3", "geo-1", "1.1.0", "/etc/faultset/app.yaml")
    assert environment({}).listen == "0.0.0.0"


def test_the_default_account_of_a_store_is_off() -> None:
    for password in (True, False):
        lines = store.accounts(password=password).splitlines()
        assert lines[0].startswith("user default off ")
    assert "user admin on >admin" in store.accounts(password=True)
    assert "user app on nopass" in store.accounts(password=False)


def test_a_machine_without_redis_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(store.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlatformError, match="install the package redis-server"):
        store.redis_programs()


def test_a_server_on_the_path_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("valkey-server", "valkey-cli"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert store.redis_programs() == (str(tmp_path / "valkey-server"), str(tmp_path / "valkey-cli"))


def test_importing_the_programs_starts_nothing() -> None:
    import subprocess

    code = (
        "import threading, os\n"
        "from faultset.collector.runtime import service, work\nfrom faultset.collector.runtime.stores import server\n"
        "from faultset.collector.load import process\n"
        "import asyncio, sys\n"
        "assert threading.active_count() == 1\n"
        "assert asyncio._get_running_loop() is None\n"
        "assert 'grpc' not in sys.modules\n"
        "assert len(os.listdir('/proc/self/fd')) <= 4\n"
    )
    folders = [str(Path(__file__).parents[3] / part) for part in ("collector", "datasets")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize(("sampling", "kept"), [(1.0, 200), (0.0, 0)])
def test_the_root_decides_for_a_whole_trace_whether_it_is_kept(sampling: float, kept: int) -> None:
    tracing = Tracing(service="geo", pod="geo-1", endpoint=None, local=None, sampling=sampling)
    roots = [tracing.server("HTTP GET /hotels", {}, {}) for _ in range(200)]
    assert sum(span.is_recording() for span, _ in roots) == kept
    for root, context in roots:
        client = tracing.client("/geo.Geo/Nearby", context, {})
        server, _ = tracing.server("/geo.Geo/Nearby", headers_of(client), {})
        assert client.is_recording() == server.is_recording() == root.is_recording()


def test_a_share_of_traces_is_about_that_share() -> None:
    tracing = Tracing(service="geo", pod="geo-1", endpoint=None, local=None, sampling=0.25)
    kept = sum(tracing.server("HTTP GET /hotels", {}, {})[0].is_recording() for _ in range(2000))
    assert 400 < kept < 600
