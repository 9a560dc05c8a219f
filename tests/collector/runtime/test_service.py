"""The program of a service."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_importing_the_programs_starts_nothing() -> None:
    code = (
        "import threading, os\n"
        "from faultset.collector.runtime import processes, service\n"
        "from faultset.collector.runtime.stores import server\n"
        "from faultset.collector.load import __main__\n"
        "import asyncio, sys\n"
        "assert threading.active_count() == 1\n"
        "assert asyncio._get_running_loop() is None\n"
        "assert 'grpc' not in sys.modules\n"
        "assert len(os.listdir('/proc/self/fd')) <= 4\n"
    )
    folders = [str(Path(__file__).parents[3] / part) for part in ("collector", "datasets")]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
