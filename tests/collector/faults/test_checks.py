"""The checks and observations of single faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.deployments import get_pod_name
from faultset.collector.faults.registry import faults, get_fault
from faultset.collector.faults.resources import counter_now, cpu_cores
from faultset.collector.faults.settings import NeededKey, list_configured_services, list_needed_keys, sharing_services
from faultset.collector.faults.stores import find_service_failure, observe_service
from faultset.collector.platforms.fake import FakePlatform, FakeSource
from faultset.collector.platforms.journal import Journal
from faultset.collector.runtime.app_code import read_app
from faultset.collector.spec.credentials import SecretKey, decoded
from faultset.core.errors import PlatformError
from tests.collector.spec.test_containers import SHOP

ACCOUNTS = "hotel-store-accounts"


@pytest.fixture
def platform(tmp_path: Path) -> FakePlatform:
    made = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    made.deploy()
    return made


def test_no_password_stands_in_the_journal_and_the_undo_brings_back_the_right_one(platform: FakePlatform) -> None:
    before = platform.get("Secret", ACCOUNTS)["data"]
    get_fault("wrong-secret").inject(platform, "geo", np.random.default_rng(1))
    after = platform.get("Secret", ACCOUNTS)["data"]
    assert {key for key in before if after[key] != before[key]} == {"mongodb-geo"}
    journal = platform.journal.path.read_text()
    for encoded in (before["mongodb-geo"], after["mongodb-geo"]):
        assert encoded not in journal
        assert decoded(encoded) not in journal
    platform.undo()
    assert platform.get("Secret", ACCOUNTS)["data"] == before


def test_a_text_that_could_not_be_brought_back_is_not_changed(platform: FakePlatform) -> None:
    before = platform.get("Secret", ACCOUNTS)
    for other in (SecretKey("mongodb-rate-credentials", "application"), SecretKey(ACCOUNTS, "none")):
        with pytest.raises(PlatformError):
            platform.change_secret(SecretKey(ACCOUNTS, "mongodb-geo"), "x", copied_from=other)
    assert platform.get("Secret", ACCOUNTS) == before


def test_a_recreated_pod_of_the_same_name_counts_as_failed(
    platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve_pod(uid: str, restarts: int) -> None:
        ended = {"restartCount": restarts, "lastState": {"terminated": {"exitCode": 1}}}
        pod = {
            "metadata": {"name": "geo-0", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"containerStatuses": [ended]},
        }
        monkeypatch.setattr(platform, "list", lambda *_: [pod])

    monkeypatch.setattr("faultset.collector.faults.stores.last_error_line", lambda *_, **__: None)
    serve_pod("first", restarts=3)
    before = observe_service(platform, "geo")
    assert find_service_failure(platform, "geo", {}, before) is None
    serve_pod("second", restarts=1)
    assert find_service_failure(platform, "geo", {}, before) == "geo-0 exited with code 1"
    serve_pod("first", restarts=4)
    assert find_service_failure(platform, "geo", {}, before) == "geo-0 exited with code 1"


CPU = "container_cpu_usage_seconds_total"
SECOND = 1_000_000_000


class FarSource(FakeSource):
    """A source that must not be asked for everything."""

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError("asked for all series")

    def recent(self, metric: str, pod: str, window_s: float) -> pa.Table:
        since = time.time_ns() - int(window_s * 1e9)
        rows = [r for r in self.rows if (r["metric"], r["pod"]) == (metric, pod) and r["time"] >= since]
        schema = pa.schema([("time", pa.timestamp("ns", tz="UTC")), ("value", pa.float64())])
        return pa.Table.from_pylist([{"time": r["time"], "value": r["value"]} for r in rows], schema=schema)


@pytest.fixture(params=[FakeSource, FarSource])
def metered(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakePlatform]:
    now = time.time_ns()
    names = {"service": "geo", "container": "geo", "metric": CPU, "labels": "{}", "kind": "counter"}
    rows = [{**names, "time": now - n * SECOND, "pod": "geo-1", "value": 100.0 - 0.5 * n} for n in range(10, 0, -1)]
    rows += [{**row, "pod": "geo-2", "value": 7.0} for row in rows]
    rows.append({**rows[0], "time": now - 500 * SECOND, "value": 0.0})
    journal = Journal(tmp_path / "journal.jsonl")
    made = FakePlatform(load_app("hotel"), journal)
    made.source_kinds["metrics"] = request.param
    made.rows["metrics"] = rows
    yield made
    journal.close()


def test_the_mean_use_is_the_growth_of_the_pods_own_counter(metered: FakePlatform) -> None:
    assert cpu_cores(metered, "geo-1") == pytest.approx(0.5)
    assert cpu_cores(metered, "geo-2") == 0.0


def test_a_counter_is_as_of_its_newest_sample_and_0_without_any(metered: FakePlatform) -> None:
    assert counter_now(metered, "geo-1", CPU) == 99.5
    assert counter_now(metered, "geo-3", CPU) == 0.0
    assert cpu_cores(metered, "geo-3") == 0.0


MORE = """
  other:
    kind: logic
    container: other
    program: [faultset-service, other]
    port: 8081
    environment: {HINT: {config: settings, key: none, optional: true}}
    operations: {/o: {steps: [{respond: {json: 1}}]}}
requests:"""


def test_keys_are_needed_that_containers_name_or_steps_read() -> None:
    app = read_app(SHOP.replace("\nrequests:", MORE), "shop.yaml")
    assert list_needed_keys(app, "web") == (
        NeededKey("settings", "currency", "variable"),
        NeededKey("settings", "currency", "group"),
        NeededKey("settings", "offers.json", "file"),
    )
    assert list_configured_services(app) == ("web",)
    assert sharing_services(app, "web") == ("other",)


def test_a_folders_file_is_needed_when_a_step_reads_it() -> None:
    mounted = "/etc/shop: {config: settings, items: {offers.json: today.json}}"
    text = SHOP.replace(mounted, "/etc/shop: {config: settings}").replace("shop/today.json", "shop/offers.json")
    assert list_needed_keys(read_app(text, "shop.yaml"), "web")[-1] == NeededKey("settings", "offers.json", "folder")


@pytest.fixture
def social(tmp_path: Path) -> FakePlatform:
    """SocialNetwork in memory."""
    made = FakePlatform(load_app("social"), Journal(tmp_path / "journal.jsonl"))
    made.deploy()
    return made


def log(social: FakePlatform, pod: str, level: str, message: str, age_s: float = 1.0) -> None:
    """Write a line of a pod."""
    row = {"time": time.time_ns() - int(age_s * 1e9), "service": "s", "pod": pod, "container": "c", "level": level}
    social.rows["logs"].append({**row, "message": message, "trace_id": None, "span_id": None})


@pytest.mark.parametrize(
    ("fault", "target", "parameters"),
    [
        ("auth-missing", "url-shorten-mongodb", {"restarted": ("url-shorten-service",)}),
        ("buggy-image", "url-shorten-service", {"image": "app:1.0.0"}),
    ],
)
def test_an_error_line_of_the_new_pod_confirms_the_fault(
    social: FakePlatform, fault: str, target: str, parameters: dict[str, object]
) -> None:
    pod, check = get_pod_name(social, "url-shorten-service"), faults()[fault].check
    social.objects["Pod", pod]["status"]["containerStatuses"][0]["image"] = "faultset/app:1.0.0"
    log(social, get_pod_name(social, "text-service"), "error", "of another service")
    log(social, pod, "info", "Starting")
    log(social, pod, "error", "long ago", age_s=300.0)
    observe = faults()[fault].observe
    before = observe(social, target) if observe else None
    log(social, pod, "error", "of before the injection", age_s=2.0 if observe else 120.0)
    assert check(social, target, parameters, before) is None
    log(social, pod, "error", "Failed to create mongodb index, try again", age_s=0.0)
    found = check(social, target, parameters, before)
    assert found is not None
    assert found.endswith("logs: Failed to create mongodb index, try again")
