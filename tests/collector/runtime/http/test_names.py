"""Names of services to addresses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from faultset.collector.runtime.http.names import Names, UnknownHostError


def test_the_hosts_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"

    async def look_up() -> list[str]:
        names, found = Names(str(hosts)), []
        for known in ({"geo": "127.0.0.2"}, {"geo": "127.0.0.3"}):
            draft = tmp_path / "draft"
            draft.write_text(json.dumps(known))
            draft.rename(hosts)
            found.append(await names.address("geo"))
        with pytest.raises(UnknownHostError, match="there is no host rate"):
            await names.address("rate")
        return found

    assert asyncio.run(look_up()) == ["127.0.0.2", "127.0.0.3"]


def test_without_a_hosts_file_addresses_are_themselves_and_names_are_asked_of_dns() -> None:
    async def look_up() -> tuple[str, str]:
        names = Names(None)
        return await names.address("127.0.0.4"), await names.address("localhost")

    assert asyncio.run(look_up()) == ("127.0.0.4", "127.0.0.1")
