"""Redis as the server of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.collector.runtime.stores import redis_driver
from faultset.collector.runtime.stores.mongodb import MongoDriver
from faultset.core.errors import PlatformError


def test_the_default_account_of_a_store_is_off() -> None:
    for password in (True, False):
        lines = MongoDriver().accounts(password=password).splitlines()
        assert lines[0].startswith("user default off ")
    assert "user admin on >admin" in MongoDriver().accounts(password=True)
    assert "user app on nopass" in MongoDriver().accounts(password=False)


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
