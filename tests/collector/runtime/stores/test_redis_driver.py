"""Redis as the server of stores."""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from faultset.collector.runtime.stores import STORE_DRIVERS, redis_driver, server
from faultset.collector.runtime.stores.driver import (
    REMOVE_ACCOUNT,
    REQUIRE_PASSWORD,
    REVOKE_RIGHTS,
    Credentials,
    StoreAccess,
    StoreDriver,
)
from faultset.core.errors import PlatformError

REDIS_DRIVERS = [driver for driver in STORE_DRIVERS.values() if isinstance(driver, redis_driver.RedisDriver)]
CREDENTIALS = Credentials(administrator="a-secret", application="another-secret")


def test_accounts_are_kept_as_digests_in_a_file_of_the_store_alone(tmp_path: Path) -> None:
    STORE_DRIVERS["mongodb"].prepare(tmp_path, account="admin", credentials=CREDENTIALS)
    text = (tmp_path / "users.acl").read_text()
    assert text.startswith("user default off ")
    assert hashlib.sha256(b"another-secret").hexdigest() in text
    assert "secret" not in text
    assert (tmp_path / "users.acl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("driver", REDIS_DRIVERS, ids=lambda driver: driver.name)
def test_the_accounts_of_a_store_can_do_what_the_application_does_and_no_more(
    driver: StoreDriver, tmp_path: Path
) -> None:
    address, port = f"127.77.251.{random.randrange(1, 250)}", 20_000 + random.randrange(20_000)
    driver.prepare(tmp_path, account="app", credentials=CREDENTIALS)
    argv = driver.server_argv(tmp_path, address=address)
    argv[argv.index("--port") + 1] = str(port)
    assert not [word for word in argv if "secret" in word]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        app = client(address, port, username="app", password="another-secret")
        wait_for(app.ping)
        app.hset("d.c", "k", "v")
        assert app.hget("d.c", "k") == b"v"
        forbidden = "ACL WHOAMI|ACL SETUSER app +@all|CONFIG SET dir /tmp|CONFIG GET *|SAVE|BGSAVE|MODULE LIST"
        forbidden += (
            "|DEBUG SLEEP 0|FLUSHALL|KEYS *|EVAL return(1) 0|REPLICAOF 127.0.0.1 1|SHUTDOWN|CLIENT LIST|MONITOR"
        )
        for words in forbidden.split("|"):
            with pytest.raises(redis.ResponseError):
                app.execute_command(*words.split())
        for username, password in (("root", "root"), ("admin", "admin"), ("app", ""), ("default", "")):
            with pytest.raises(redis.AuthenticationError):
                client(address, port, username=username, password=password).ping()
        with pytest.raises(redis.AuthenticationError):
            client(address, port).ping()
        root = client(address, port, username="root", password="a-secret")
        for words in ("CONFIG SET dir /tmp", "SAVE", "MODULE LIST", "DEBUG SLEEP 0", "REPLICAOF 127.0.0.1 1"):
            with pytest.raises(redis.ResponseError, match="unknown command"):
                root.execute_command(*words.split())
        administrator = driver.administrator(StoreAccess(address, port, "app", CREDENTIALS))
        for change in (REVOKE_RIGHTS, REMOVE_ACCOUNT, REQUIRE_PASSWORD):
            administrator.perform(change.action)
            with pytest.raises(redis.RedisError):
                client(address, port, username="app", password="another-secret").get("x")
            administrator.perform(change.undo)
            again = client(address, port, username="app", password="another-secret")
            assert again.hget("d.c", "k") == b"v"
    finally:
        process.kill()
        process.wait()


def client(address: str, port: int, **login: str) -> redis.Redis:
    """A client that is told at once when it is refused."""
    return redis.Redis(host=address, port=port, protocol=2, retry=Retry(NoBackoff(), 0), **login)  # type: ignore[arg-type]


def wait_for(call: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            call()
            return
        except redis.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "10.0.0.7", "nonsense", "224.0.0.1"])
def test_a_store_refuses_to_listen_where_others_could_reach_it(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("POD_IP", address)
    monkeypatch.setenv("FAULTSET_DATA", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert server.main(["mongodb"]) == 4
    assert "POD_IP" in capsys.readouterr().err


def test_a_store_without_its_secret_says_what_to_mount(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    monkeypatch.setenv("FAULTSET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FAULTSET_CREDENTIALS", str(tmp_path))
    assert server.main(["mongodb"]) == 4
    assert "mount the Secret there" in capsys.readouterr().err


def test_a_machine_without_redis_learns_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_driver.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlatformError, match="install the package redis-server"):
        redis_driver.redis_programs()


def test_a_server_on_the_path_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("valkey-server", "valkey-cli"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis_driver.redis_programs() == (str(tmp_path / "valkey-server"), str(tmp_path / "valkey-cli"))
