"""HotelReservation on the local platform, with load and telemetry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.collector.platforms.local.routing import AddressBlock
from faultset.collector.runtime.builds import LEAKS, draw_builds
from faultset.datasets.format.schemas import TABLES

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0
QUERY = "/hotels?inDate=2015-04-10&outDate=2015-04-12&lat=37.7867&lon=-122.4112"


class Hotel:
    def __init__(self, folder: Path):
        self.journal = Journal(folder / "journal.jsonl")
        self.platform = LocalPlatform(
            load_app("hotel"), folder / "scratch", journal=self.journal, seed=11, back_off_factor=0.1
        )

    def serves(self) -> bool:
        address = self.platform.get("Service", "frontend")["spec"]["clusterIP"]
        try:
            with urllib.request.urlopen(f"http://{address}:5000{QUERY}", timeout=10) as response:
                return len(json.load(response)["features"]) > 0
        except (urllib.error.URLError, ConnectionError):
            return False

    def until(self, condition, what: str = "what the test waits for") -> None:
        self.platform.wait(condition, timeout_s=TIMEOUT_S, what=what)

    def pod(self, service: str) -> dict:
        found = self.platform.list("Pod", {"io.kompose.service": service})
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")][-1]

    def table(self, name: str) -> pa.Table:
        source = self.platform.sources[name]
        schema = pa.schema([field for field in TABLES[name] if field.name != "episode"])
        return pa.Table.from_batches(source.snapshot(0, time.time_ns()), schema=schema)

    def values(self, metric: str, pod: str) -> list[float]:
        rows = self.table("metrics").to_pandas()
        return rows.loc[(rows["metric"] == metric) & (rows["pod"] == pod), "value"].to_list()


@pytest.fixture(scope="module")
def hotel(tmp_path_factory):
    made = Hotel(tmp_path_factory.mktemp("hotel"))
    try:
        started = time.monotonic()
        made.platform.deploy()
        deployed = time.monotonic()
        made.until(made.serves, "the first answer")
        print(
            f"deployed in {deployed - started:.2f} s, first answer {time.monotonic() - started:.2f} s after the start"
        )
        made.platform.start_load(seed=1, rate_rps=15, mix="default")
        yield made
    finally:
        made.platform.teardown()
        made.journal.close()


def test_every_table_fills(hotel):
    hotel.until(lambda: all(hotel.table(name).num_rows for name in TABLES), "rows in every table")
    for name in TABLES:
        assert hotel.table(name).num_rows > 0


def test_all_services_are_seen_in_container_metrics(hotel):
    def seen() -> set[str]:
        rows = hotel.table("metrics").to_pandas()
        return set(rows.loc[rows["metric"] == "container_cpu_usage_seconds_total", "service"])

    hotel.until(lambda: seen() == set(hotel.platform.app.services), "samples of every service")


def test_a_cpu_limit_below_the_need_shows_in_the_throttling_counters(hotel):
    pod = hotel.pod("search")["metadata"]["name"]
    containers = hotel.platform.get("Pod", pod)["spec"]["containers"]
    containers[0]["resources"]["limits"]["cpu"] = "5m"
    hotel.platform.patch("Pod", pod, {"spec": {"containers": containers}})
    metric = "container_cpu_cfs_throttled_periods_total"
    hotel.until(lambda: (hotel.values(metric, pod) or [0])[-1] >= 5, "throttled periods")
    hotel.platform.undo()
    assert hotel.platform.get("Pod", pod)["status"]["containerStatuses"][0]["restartCount"] == 0
    hotel.until(hotel.serves)


def test_a_leaking_build_is_killed_for_its_memory(hotel):
    containers = hotel.platform.get("Deployment", "geo")["spec"]["template"]["spec"]["containers"]
    tag = draw_builds(hotel.platform.app.variation.seed).tag_with(LEAKS[-1])
    containers[0]["image"] = f"faultset/app:{tag}"
    containers[0]["resources"]["limits"]["memory"] = "120Mi"
    hotel.platform.patch("Deployment", "geo", {"spec": {"template": {"spec": {"containers": containers}}}})

    def ended() -> dict:
        statuses = hotel.pod("geo")["status"].get("containerStatuses", [])
        return statuses[0].get("lastState", {}).get("terminated", {}) if statuses else {}

    hotel.until(lambda: ended().get("reason") == "OOMKilled", "the end of the leaking container")
    assert ended()["exitCode"] == 137
    assert "OOMKilling" in hotel.table("events")["reason"].cast(pa.string()).to_pylist()
    hotel.platform.undo()
    hotel.until(hotel.serves)


def test_a_service_whose_store_is_gone_crashes_in_a_growing_rhythm_and_recovers(hotel):
    hotel.platform.patch("Deployment", "mongodb-geo", {"spec": {"replicas": 0}})
    hotel.platform.delete("Pod", hotel.pod("geo")["metadata"]["name"], grace_period_s=0)

    def crash_loop() -> bool:
        status = hotel.pod("geo")["status"].get("containerStatuses", [{"restartCount": 0}])[0]
        return status["restartCount"] >= 2

    hotel.until(crash_loop, "two restarts of geo")
    hotel.platform.undo()
    hotel.until(hotel.serves, "the recovery of geo")


RUNNER = """
import sys, time
from pathlib import Path
from faultset.collector.apps import load_app
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform

folder = Path(sys.argv[1])
platform = LocalPlatform(load_app("hotel"), folder / "scratch", journal=Journal(folder / "journal.jsonl"), seed=1)
platform.deploy()
platform.start_load(seed=1, rate_rps=5, mix="default")
pod = platform.list("Pod", {"io.kompose.service": "geo"})[0]["metadata"]["name"]
platform.exec(pod, ["faultset-work", "cpu", "--workers", "2", "--seconds", "600", "--pid-file", str(folder / "pids")])
print(platform._plane.addresses.number, flush=True)
time.sleep(600)
"""


def test_nothing_is_left_when_the_runner_is_killed(tmp_path):
    command = [sys.executable, "-c", RUNNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        block = int(runner.stdout.readline())
        family = psutil.Process(runner.pid).children(recursive=True)
        assert len(family) >= 24
        os.kill(runner.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=TIMEOUT_S)
    assert alive == []
    addresses = AddressBlock(block)
    addresses.release()
    hotel = Hotel(tmp_path)
    try:
        hotel.platform.deploy()
        hotel.until(hotel.serves, "the second run in the same folder")
    finally:
        hotel.platform.teardown()
        hotel.journal.close()
