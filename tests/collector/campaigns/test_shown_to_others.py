"""What other users of the machine, and readers of the dataset, see of a running episode: no password, no open door."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import time
from pathlib import Path

import pytest
from shown_to_others import listening_addresses, open_to_others, shown_texts

from tests.collector.campaigns.test_killed_campaigns import phases_of, scratch_of, start

pytestmark = pytest.mark.slow


def passwords_in(folder: Path) -> set[str]:
    """Return the passwords that the containers of an episode have mounted."""
    mounted = folder.glob("pods/*/*/mounts/var/run/secrets/faultset/*")
    return {path.read_text() for path in mounted if path.is_file()}


def test_a_running_episode_shows_no_password_and_listens_on_loopback_only(tmp_path: Path) -> None:
    root = tmp_path / "data"
    collector: subprocess.Popen[str] = start(root)
    try:
        deadline = time.monotonic() + 90
        while not ((folder := scratch_of(root)) and "fault" in phases_of(folder)):
            assert time.monotonic() < deadline, "the fault was not injected"
            time.sleep(0.1)
        passwords = passwords_in(folder)
        assert len(passwords) == 2 * 9
        addresses = listening_addresses(collector.pid)
        assert len(addresses) > 18
        assert all(ipaddress.ip_address(address).is_loopback for address in addresses), addresses
        shown = "\n".join(shown_texts(collector.pid))
        assert "faultset" in shown
        assert not [password for password in passwords if password in shown]
        assert open_to_others(folder) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        said, _ = collector.communicate(timeout=120)
    finally:
        if collector.poll() is None:
            collector.kill()
            collector.communicate()
    written = [path for path in root.rglob("*") if path.is_file()]
    assert written
    for path in written:
        content = path.read_bytes()
        assert not [password for password in passwords if password.encode() in content], path
    assert not [password for password in passwords if password in said]
    assert json.loads(next((root / "versions").glob("*.json")).read_text())["version"] == "1.0.0", said
