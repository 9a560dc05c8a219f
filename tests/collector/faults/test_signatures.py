"""Every fault run for real with short phases: does the data show what such a fault shows on a cluster?

One campaign of all faults is collected for the module; FAULTSET_SIGNATURES names a dataset to look at instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import pandas as pd
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.truth import read_evidence, read_label
from faultset.datasets.views import EpisodeView

pytestmark = pytest.mark.slow
HOTEL = load_app("hotel")


class Episode:
    """One fault episode, cut at the onset."""

    def __init__(self, path: Path):
        self.view, self.label, self.evidence = EpisodeView(path), read_label(path), read_evidence(path)
        self.target: str = self.label.targets[0]
        self.parameters = self.label.parameters
        self.onset = pd.to_datetime(int(self.label.inject_start_ns or 0), utc=True)

    def after(self, table: pd.DataFrame, delay_s: float = 0.0, column: str = "time") -> pd.DataFrame:
        return table[table[column] >= self.onset + pd.Timedelta(seconds=delay_s)]

    def before(self, table: pd.DataFrame, column: str = "time") -> pd.DataFrame:
        return table[table[column] < self.onset]

    @cached_property
    def spans(self) -> pd.DataFrame:
        return self.view.spans()

    @cached_property
    def events(self) -> pd.DataFrame:
        return self.after(self.view.events())

    @cached_property
    def logs(self) -> pd.DataFrame:
        return self.after(self.view.logs())

    @cached_property
    def requests(self) -> pd.DataFrame:
        return self.view.requests()

    def states(self, kind: str, service: str) -> list[dict]:
        rows = self.after(self.view.objects())
        rows = rows[(rows["kind"] == kind) & (rows["service"] == service)]
        return [json.loads(state) for state in rows["state"]]

    def containers(self, service: str) -> list[dict]:
        return [c for pod in self.states("Pod", service) for c in pod.get("containers", [])]

    def reasons(self, service: str) -> set[str]:
        return set(self.events.loc[self.events["service"] == service, "reason"].astype(str))

    def messages(self, service: str) -> str:
        return "\n".join(self.logs.loc[self.logs["service"] == service, "message"])

    def series(self, service: str, metric: str) -> tuple[pd.Series, pd.Series]:
        wide = self.view.wide()
        column = wide[(service, metric)].dropna()
        return column[column.index < self.onset], column[column.index >= self.onset]

    def calls_of(self, kind: str, delay_s: float = 7.0) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Spans of calls to the target, by their callers (client) or by itself (server), before and after."""
        rpc = self.spans[self.spans["operation"].astype(str).str.startswith("/")]
        names = set(HOTEL.services[self.target].operations)
        rpc = rpc[(rpc["kind"] == kind) & rpc["operation"].astype(str).isin(names)]
        return self.before(rpc), self.after(rpc, delay_s)

    def errors_at_client(self, delay_s: float = 7.0) -> int:
        return int((self.after(self.requests, delay_s, "scheduled")["status"] == 500).sum())

    def most_restarts(self, service: str) -> int:
        return max((c["restartCount"] for c in self.containers(service)), default=0)

    def exit_codes(self, service: str) -> set[int]:
        return {c["exitCode"] for c in self.containers(service) if c.get("exitCode") is not None}

    @property
    def consumers(self) -> tuple[str, ...]:
        return HOTEL.consumers(self.target)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FAULTSET_SIGNATURES")
    if given:
        return Path(given)
    root = tmp_path_factory.mktemp("signatures") / "data"
    command = "from faultset.collector.cli.collect import collect; collect()"
    options = ["--faults", "all", "--apps", "hotel", "--profile", "quick", "--normal", "2", "--seed", "11"]
    run = subprocess.run(
        [sys.executable, "-c", command, *options, "--out", str(root)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return root


@pytest.fixture(scope="module")
def episodes(dataset: Path) -> dict[str, list[Episode]]:
    found: dict[str, list[Episode]] = {name: [] for name in faults()}
    opened = open_dataset(dataset)
    for episode in opened.episodes:
        label = opened.label(episode)
        if label.fault is not None:
            found[label.fault].append(Episode(opened.path(episode)))
    return found


def target_port(e: Episode) -> None:
    _, server_after = e.calls_of("server")
    assert server_after.empty, "the callee is idle once pooled connections have retired"
    assert e.most_restarts(e.target) == 0, "the callee is healthy"
    _, client_after = e.calls_of("client")
    assert (client_after["status"] == "error").all()
    assert client_after["attributes"].str.contains("connection refused").any()
    assert e.errors_at_client() > 0
    ports = [port for state in e.states("Service", e.target) for port in state["ports"]]
    assert e.parameters["target_port"] in {port["targetPort"] for port in ports}


def _crash_loop(e: Episode, service: str, exit_code: int, line: str) -> None:
    assert line in e.messages(service)
    assert exit_code in e.exit_codes(service)
    assert e.most_restarts(service) >= 2
    assert "BackOff" in e.reasons(service)
    assert any(c.get("reason") == "CrashLoopBackOff" for c in e.containers(service))


def revoke_auth(e: Episode) -> None:
    _crash_loop(e, e.consumers[0], 1, "not authorized on")
    assert "NOPERM" in e.messages(e.consumers[0])
    assert e.most_restarts(e.target) == 0


def user_unregistered(e: Episode) -> None:
    _crash_loop(e, e.consumers[0], 2, "Authentication failed")


def auth_missing(e: Episode) -> None:
    _crash_loop(e, e.consumers[0], 2, "Authentication failed")


def buggy_image(e: Episode) -> None:
    assert "no reachable servers" in e.messages(e.target)
    assert 2 in e.exit_codes(e.target)
    assert any(c["image"].endswith(e.parameters["image"]) for c in e.containers(e.target))
    assert "ScalingReplicaSet" in e.reasons(e.target)


def scale_to_zero(e: Episode) -> None:
    assert {"ScalingReplicaSet", "Killing"} <= e.reasons(e.target)
    scaled = e.events[(e.events["service"] == e.target) & (e.events["reason"] == "ScalingReplicaSet")]
    assert scaled["message"].str.contains("from 1 to 0|to 0 from 1").any()
    _, after = e.series(e.target, "container_cpu_usage_seconds_total")
    assert after.empty or after.index.max() < e.onset + pd.Timedelta(seconds=35), "its series end"
    assert e.calls_of("server")[1].empty
    assert e.errors_at_client() > 0


def nonexistent_node(e: Episode) -> None:
    assert "FailedScheduling" in e.reasons(e.target)
    said = e.events.loc[e.events["reason"] == "FailedScheduling", "message"]
    assert said.str.contains("didn't match Pod's node affinity/selector").any()
    assert any(pod["phase"] == "Pending" for pod in e.states("Pod", e.target))
    assert e.calls_of("server")[1].empty


def _untouched(e: Episode) -> None:
    assert e.most_restarts(e.target) == 0
    assert not {"Killing", "BackOff", "FailedScheduling"} & e.reasons(e.target)


def _runs_on(e: Episode) -> bool:
    """Whether the container was not restarted; only a cache that takes 2 s to answer makes its user panic."""
    if e.most_restarts(e.target) == 0:
        _untouched(e)
        return True
    assert HOTEL.services[e.target].stores
    assert 2 in e.exit_codes(e.target)
    assert "timeout" in e.messages(e.target)
    return False


def network_loss(e: Episode) -> None:
    runs_on = _runs_on(e)
    dropped = "container_network_transmit_packets_dropped_total"
    if (e.target, dropped) in e.view.wide().columns:
        before, after = e.series(e.target, dropped)
        assert before.max() == 0
        assert after.sum() > 0
    else:
        assert e.view.context.platform == "kubernetes", "only a cluster's cAdvisor may have no network"
    client_before, client_after = e.calls_of("client", 0)
    slower = client_after["duration_ns"].quantile(0.9) / client_before["duration_ns"].quantile(0.9)
    assert slower > 3 or not runs_on


def network_delay(e: Episode) -> None:
    if not _runs_on(e):
        return
    _, client = e.calls_of("client", 0)
    _, server = e.calls_of("server", 0)
    latency_ns = e.parameters["latency_s"] * 1e9
    assert client["duration_ns"].median() > 0.8 * latency_ns, "client spans are long"
    if not HOTEL.services[e.target].calls and not HOTEL.services[e.target].stores:
        assert server["duration_ns"].median() < 0.2 * latency_ns, "server spans are short"


def network_partition(e: Episode) -> None:
    _runs_on(e)
    assert e.calls_of("server", 5)[1].empty
    hanging = e.after(e.requests, 0, "scheduled")["outcome"].isin(["unfinished", "timeout"])
    assert hanging.any()


def pod_failure(e: Episode) -> None:
    about = e.events[e.events["service"] == e.target]
    assert about["message"].str.contains("definition changed, will be restarted").any()
    assert e.most_restarts(e.target) == 1
    assert e.states("Pod", e.target)[-1]["phase"] == "Running"
    assert e.states("Pod", e.target)[-1]["ready"] is True
    assert e.calls_of("server")[1].empty
    assert e.errors_at_client() > 0


def container_kill(e: Episode) -> None:
    assert 137 in e.exit_codes(e.target)
    assert e.most_restarts(e.target) >= 2
    assert "Started" in e.reasons(e.target)
    assert "OOMKilled" not in {c.get("reason") for c in e.containers(e.target)}


def pod_kill(e: Episode) -> None:
    objects = e.view.objects()
    names = set(objects[(objects["kind"] == "Pod") & (objects["service"] == e.target)]["name"])
    assert len(names) >= 3
    assert e.most_restarts(e.target) == 0


def redeploy_without_pv(e: Episode) -> None:
    assert any(state["phase"] == "Pending" for state in e.states("PersistentVolumeClaim", e.target))
    assert e.events["reason"].eq("ProvisioningFailed").any()
    said = e.events.loc[e.events["reason"] == "FailedScheduling", "message"]
    assert said.str.contains("unbound immediate PersistentVolumeClaims").any()
    assert any(e.most_restarts(c) >= 1 or "no reachable servers" in e.messages(c) for c in e.consumers)


def wrong_binary(e: Episode) -> None:
    running = [pod for pod in e.states("Pod", e.target) if pod["phase"] == "Running"]
    assert running
    assert e.most_restarts(e.target) == 0
    spans = e.after(e.spans, 7)
    reported = set(spans[spans["service"] == e.target]["reported_service"].astype(str))
    assert e.target not in reported
    assert f"srv-{e.parameters['program']}" in e.messages(e.target)
    assert e.errors_at_client() > 0


def cpu_throttle(e: Episode) -> None:
    _untouched(e)
    before, after = e.series(e.target, "container_cpu_cfs_throttled_periods_total")
    assert after.mean() > max(0.5, 5 * before.mean())


def cpu_hog(e: Episode) -> None:
    _untouched(e)
    before, after = e.series(e.target, "container_cpu_usage_seconds_total")
    assert after.median() > 3 * before.median()
    assert after.quantile(0.9) <= 1.25 * HOTEL.services[e.target].cpu_limit, "it stays inside the pod's limit"


def memory_leak(e: Episode) -> None:
    assert 137 in e.exit_codes(e.target)
    assert "OOMKilled" in {c.get("reason") for c in e.containers(e.target)}
    before, after = e.series(e.target, "container_memory_working_set_bytes")
    assert after.max() > 1.5 * before.max()


def wrong_selector(e: Episode) -> None:
    _untouched(e)
    assert e.calls_of("server")[1].empty, "the callee is idle once pooled connections have retired"
    assert any(state["ready"] == 0 for state in e.states("Endpoints", e.target))
    assert any(e.parameters["label"] in state["selector"] for state in e.states("Service", e.target))
    assert e.errors_at_client() > 0


def missing_image(e: Episode) -> None:
    assert {"Failed", "BackOff"} <= e.reasons(e.target)
    assert {"ErrImagePull", "ImagePullBackOff"} & {c.get("reason") for c in e.containers(e.target)}
    assert e.calls_of("server")[1].empty
    assert e.errors_at_client() > 0


SIGNATURES: dict[str, Callable[[Episode], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        target_port,
        revoke_auth,
        user_unregistered,
        auth_missing,
        buggy_image,
        scale_to_zero,
        nonexistent_node,
        network_loss,
        network_delay,
        network_partition,
        pod_failure,
        container_kill,
        pod_kill,
        redeploy_without_pv,
        wrong_binary,
        cpu_throttle,
        cpu_hog,
        memory_leak,
        wrong_selector,
        missing_image,
    )
}


def each(episodes: dict[str, list[Episode]], name: str, dataset: Path) -> Iterator[Episode]:
    for campaign in (dataset / "campaigns").glob("*.json"):
        reason = json.loads(campaign.read_text()).get("refused", {}).get(name)
        if reason:
            pytest.skip(f"left out of the campaign: {reason}")
    assert episodes[name], f"no episode of {name} came to an end"
    yield from episodes[name]


@pytest.mark.parametrize("name", faults())
def test_the_data_shows_what_the_fault_shows_on_a_cluster(
    name: str, episodes: dict[str, list[Episode]], dataset: Path
) -> None:
    for episode in each(episodes, name, dataset):
        SIGNATURES[name](episode)


@pytest.mark.parametrize("name", faults())
def test_injection_and_recovery_are_proved(name: str, episodes: dict[str, list[Episode]], dataset: Path) -> None:
    for episode in each(episodes, name, dataset):
        rows = episode.evidence.set_index("check")
        assert rows.loc[["injection"], "passed"].all()
        assert rows.loc[["recovery"], "passed"].all()
        assert episode.label.healthy_again_ns is not None


@pytest.mark.parametrize("name", faults())
def test_the_fault_shows_at_the_client_or_at_its_target(
    name: str, episodes: dict[str, list[Episode]], dataset: Path
) -> None:
    for episode in each(episodes, name, dataset):
        assert episode.label.verdict in ("manifest", "latent")
