"""What an administrator does inside a store's pod, on a server that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from store_server import CREDENTIALS, StoreServer, running

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.file_limits import free_files, limit_files
from faultset.collector.runtime.administration.long_queries import begin_locking, begin_reporting
from faultset.collector.runtime.administration.messages import publish_unreadable, remove_unreadable
from faultset.collector.runtime.administration.open_files import open_file_sizes
from faultset.collector.runtime.administration.state import store_state
from faultset.collector.runtime.background.processes import end_work, running_work
from faultset.collector.runtime.stores.driver import REVOKE_CONSUMING, REVOKE_WRITING, AdminChange, StoreClient
from faultset.collector.runtime.stores.mongodb import MongoDriver
from faultset.core.errors import PlatformError

DRIVER = MongoDriver()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreAccess]:
    """A store with one account."""
    with running(StoreServer[StoreClient](DRIVER, tmp_path)) as server:
        wait_for(lambda: answers(server.access), "the server")
        yield server.access


def answers(access: StoreAccess) -> bool:
    client = access.application()
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()


def test_a_healthy_store_refuses_nothing(store: StoreAccess) -> None:
    state = store_state(store, stream="shop.orders")
    assert state == {
        "write_refused": "",
        "consume_refused": state["consume_refused"],
        "file_limit": None,
        "file_write": "ok",
        "unreadable": 0,
    }
    json.dumps(state)


@pytest.mark.parametrize(
    ("change", "field"), [(REVOKE_WRITING, "write_refused"), (REVOKE_CONSUMING, "consume_refused")]
)
def test_a_right_that_is_taken_shows_and_is_given_back(store: StoreAccess, change: AdminChange, field: str) -> None:
    before = store_state(store)[field]
    DRIVER.administer(store.address, store.port, change.action, account="app", credentials=CREDENTIALS)
    assert "permission" in store_state(store)[field]
    client = store.application()
    assert client.hget("d.c", "k") is None, "reading goes on"
    DRIVER.administer(store.address, store.port, change.undo, account="app", credentials=CREDENTIALS)
    assert store_state(store)[field] == before
    client.close()


def test_files_that_may_not_grow_make_writes_fail_until_they_may(store: StoreAccess) -> None:
    client = store.application()
    client.hset("d.c", "k", "v")
    limit_files(store, 100)
    assert store_state(store)["file_limit"] is not None

    def is_refused() -> bool:
        try:
            client.hset("d.c", "k", "v" * 500)
        except redis.ResponseError as error:
            return "MISCONF" in str(error)
        return False

    wait_for(is_refused, "a refusal")
    assert client.hget("d.c", "k"), "reading goes on"
    assert store_state(store)["file_write"] == "err"
    free_files(store)
    wait_for(lambda: not is_refused(), "writes")
    assert store_state(store)["file_limit"] is None
    client.close()


def test_files_that_a_server_opens_and_closes_meanwhile_do_not_disturb_a_limit(tmp_path: Path) -> None:
    """This process stands for the server."""
    appended, over = tmp_path / "data.aof", threading.Event()
    appended.write_bytes(b"x" * 1000)

    def open_and_close() -> None:
        while not over.is_set():
            (tmp_path / "other.aof").write_bytes(b"x")
            with (tmp_path / "other.aof").open("rb"):
                (tmp_path / "other.aof").unlink()

    thread = threading.Thread(target=open_and_close)
    with appended.open("rb"):
        thread.start()
        try:
            for _ in range(300):
                assert max(open_file_sizes(os.getpid(), (".aof",))) == 1000
        finally:
            over.set()
            thread.join()


def test_a_server_that_is_gone_is_one_sentence() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as server:
        server.wait()
    with pytest.raises(PlatformError, match="the store's server cannot be looked at"):
        open_file_sizes(server.pid, (".aof",))


def test_only_a_store_with_files_can_have_them_limited(store: StoreAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "faultset.collector.runtime.administration.file_limits.open_file_sizes", lambda pid, endings: []
    )
    with pytest.raises(PlatformError, match="the store writes no file"):
        limit_files(store, 100)


def test_unreadable_messages_are_counted_and_removed(store: StoreAccess) -> None:
    client = store.administrator()
    client.xadd("shop.orders", {"body": '{"order_id": "1"}'})
    publish_unreadable(store, "shop.orders")
    assert store_state(store, stream="shop.orders")["unreadable"] == 1
    remove_unreadable(store, "shop.orders")
    assert store_state(store, stream="shop.orders")["unreadable"] == 0
    assert client.xlen("shop.orders") == 1, "what can be read stays"
    client.close()


@pytest.mark.parametrize("begin", [begin_locking, begin_reporting])
def test_long_queries_hold_others_up_until_they_are_stopped(
    store: StoreAccess, begin: Callable[..., None], tmp_path: Path
) -> None:
    client, pid_file = store.application(), tmp_path / "pids"
    client.hset("d.c", mapping={str(number): "x" * 50 for number in range(100)})
    begin(store, on_ms=300, off_ms=50, seconds=60.0, pid_file=pid_file)
    waited: list[float] = []

    def is_held_up() -> bool:
        begun = time.monotonic()
        client.hget("d.c", "1")
        waited.append(time.monotonic() - begun)
        return waited[-1] > 0.15

    wait_for(is_held_up, "an answer that comes late")
    assert running_work(pid_file)
    end_work(pid_file)
    wait_for(lambda: not running_work(pid_file), "the end")
    time.sleep(0.4)
    is_held_up()
    assert waited[-1] < 0.15
    client.close()
