"""The relay as a process: it ends with its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from faultset.collector.ipc.channel import Channel
from faultset.collector.platforms.local.relay.messages import ReadCounters
from faultset.core.errors import PlatformError

_PARENT = """
import os, sys, time
from pathlib import Path
from faultset.collector.platforms.local.relay import main
parent = os.getpid()
if os.fork() == 0:
    main(Path(sys.argv[1]), parent=parent)
time.sleep(60)
"""


def gone(channel: Channel) -> bool:
    try:
        channel.call(ReadCounters())
    except PlatformError:
        return True
    return False


def test_the_relay_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    with subprocess.Popen([sys.executable, "-c", _PARENT, str(path)]) as parent:
        channel = Channel(path)
        channel.call(ReadCounters())
        parent.kill()
        assert any(gone(channel) for _ in range(100_000))
        channel.close()


def test_the_relay_does_not_start_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    code = f"from faultset.collector.platforms.local.relay import main; main({str(path)!r}, parent=1_000_000_000)"
    finished = subprocess.run([sys.executable, "-c", code], timeout=20, check=False)
    assert finished.returncode == 1
    assert not path.exists()
