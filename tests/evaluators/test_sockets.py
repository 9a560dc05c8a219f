"""An evaluation on one machine is reachable from this machine alone."""

from __future__ import annotations

import contextlib
import ipaddress
import subprocess
import sys
import time
from pathlib import Path

import psutil

from faultset.datasets.examples import write_example_dataset


def test_an_evaluation_listens_on_loopback_only(tmp_path: Path) -> None:
    write_example_dataset(tmp_path / "data", episodes=2, baseline_s=20, fault_s=20)
    words = [
        str(Path(sys.executable).with_name("evaluate")),
        str(tmp_path / "data"),
        "--baselines",
        "max-z,random,baro",
    ]
    process = subprocess.Popen([*words, "--out", str(tmp_path / "results")], stdout=subprocess.DEVNULL, stderr=-1)
    found: set[str] = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            for one in (parent, *parent.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    found |= {connection.laddr.ip for connection in one.net_connections(kind="inet")}
        time.sleep(0.05)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert found, "the status pages of dask were not seen"
    assert all(ipaddress.ip_address(address).is_loopback for address in found), found
