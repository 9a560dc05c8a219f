"""A helper process that was stopped or killed is noticed at the next look."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from faultset.collector.ipc.processes import HelperProcess
from faultset.core.errors import PlatformError


@pytest.mark.parametrize(
    ("number", "sentence"), [(signal.SIGSTOP, "was stopped by a signal"), (signal.SIGKILL, "ended with code -9")]
)
def test_a_process_that_was_stopped_or_killed_is_named_and_ends(
    number: signal.Signals, sentence: str, tmp_path: Path
) -> None:
    process = HelperProcess("relay", "time:sleep", [], sockets=tmp_path, logs=tmp_path)
    process._process.terminate()
    process._process.wait()
    process._process = subprocess.Popen(["sleep", "60"])
    process.check()
    os.kill(process._process.pid, number)
    time.sleep(0.3)
    with pytest.raises(PlatformError, match=sentence):
        process.check()
    assert process._process.poll() is not None
