"""What an administrator does inside a store's pod, on a Redis server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from store_server import StoreServer, running

from faultset.collector.runtime.processes import end_work, running_work
from faultset.collector.runtime.stores import STORE_DRIVERS
from faultset.collector.runtime.stores.driver import REVOKE_CONSUMING, REVOKE_WRITING, AdminChange
from faultset.collector.runtime.stores.redis_driver import RedisAdministrator
from faultset.core.errors import PlatformError


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisAdministrator]:
    """The administrator of a store with one account."""
    with running(StoreServer(STORE_DRIVERS["mongodb"], tmp_path)) as server:
        administrator = server.administrator
        assert isinstance(administrator, RedisAdministrator)
        wait_for(lambda: answers(administrator), "the server")
        yield administrator


@pytest.fixture
def client(store: RedisAdministrator) -> Iterator[redis.Redis]:
    with store.connect("test", as_application=True) as connected:
        yield connected


def answers(store: RedisAdministrator) -> bool:
    try:
        with store.connect("test", as_application=True) as client:
            return bool(client.ping())
    except PlatformError:
        return False


def test_a_healthy_store_refuses_nothing(store: RedisAdministrator) -> None:
    state = store.state("shop.orders")
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
def test_a_right_that_is_taken_shows_and_is_given_back(
    store: RedisAdministrator, client: redis.Redis, change: AdminChange, field: str
) -> None:
    before = store.state()[field]
    store.perform(change.action)
    assert "permission" in store.state()[field]
    assert client.hget("d.c", "k") is None, "reading goes on"
    store.perform(change.undo)
    assert store.state()[field] == before


def test_files_that_may_not_grow_make_writes_fail_until_they_may(
    store: RedisAdministrator, client: redis.Redis
) -> None:
    client.hset("d.c", "k", "v")
    store.limit_files(100)
    assert store.state()["file_limit"] is not None

    def is_refused() -> bool:
        try:
            client.hset("d.c", "k", "v" * 500)
        except redis.ResponseError as error:
            return "MISCONF" in str(error)
        return False

    wait_for(is_refused, "a refusal")
    assert client.hget("d.c", "k"), "reading goes on"
    assert store.state()["file_write"] == "err"
    store.free_files()
    wait_for(lambda: not is_refused(), "writes")
    assert store.state()["file_limit"] is None


def test_only_a_store_with_files_can_have_them_limited(
    store: RedisAdministrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultset.collector.runtime.stores.redis_driver.open_file_sizes", lambda pid, suffix: [])
    with pytest.raises(PlatformError, match="the store writes no file"):
        store.limit_files(100)


def test_unreadable_messages_are_counted_and_removed(store: RedisAdministrator, client: redis.Redis) -> None:
    client.xadd("shop.orders", {"body": '{"order_id": "1"}'})
    store.publish_unreadable("shop.orders")
    assert store.state("shop.orders")["unreadable"] == 1
    store.remove_unreadable("shop.orders")
    assert store.state("shop.orders")["unreadable"] == 0
    assert client.xlen("shop.orders") == 1, "what can be read stays"


@pytest.mark.parametrize("verb", ["lock", "report"])
def test_long_queries_hold_others_up_until_they_are_stopped(
    store: RedisAdministrator, client: redis.Redis, verb: str, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pids"
    client.hset("d.c", mapping={str(number): "x" * 50 for number in range(100)})
    getattr(store, verb)(on_ms=300, off_ms=50, seconds=60.0, pid_file=pid_file)
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
