"""A cluster that is restless while episodes run: the campaign goes on, and what is lost is repeated."""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from cluster_campaigns import COLLECT, SHORT, await_phase

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.objects import list_namespaces
from faultset.datasets.format.labels import read_journal, read_label
from faultset.datasets.views import EpisodeView

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def begin(out: Path, fault: str, **environment: str) -> subprocess.Popen[str]:
    options = ["--faults", fault, "--apps", "hotel", "--normal", "0", *SHORT, "--out", str(out)]
    return subprocess.Popen([*COLLECT, *options], stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def printed(process: subprocess.Popen[str]) -> str:
    return process.stderr.read() if process.stderr else ""


def end(process: subprocess.Popen[str]) -> str:
    _, said = process.communicate(timeout=500)
    assert process.returncode == 0, said[-3000:]
    return said


def test_an_episode_whose_load_was_evicted_is_repeated(api: Api, tmp_path: Path) -> None:
    process = begin(tmp_path / "d", "target-port")
    await_phase(tmp_path / "d", "baseline", process, lambda: printed(process))
    (control,) = [n["metadata"]["name"] for n in list_namespaces(api) if n["metadata"]["name"].endswith("-control")]
    api.call("DELETE", f"/api/v1/namespaces/{control}/pods/load", body={"gracePeriodSeconds": 0})
    end(process)
    (episode,) = (tmp_path / "d" / "episodes").iterdir()
    assert read_label(episode).verdict == "manifest"
    assert list((tmp_path / "d" / ".failed").iterdir()), "the first attempt is kept for diagnosis"


class Gate:
    """A relay on loopback in front of the API server, which can be closed for a while."""

    def __init__(self, host: str, port: int):
        self._to, self.is_open = (host, port), True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self.is_open = False
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_open:
                client.close()
                continue
            server = socket.create_connection(self._to)
            self._pairs.append((client, server))
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        try:
            while True:
                for ready in select.select([client, server], [], [], 1.0)[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    other[ready].sendall(data)
        except (OSError, ValueError):
            return
        finally:
            for end in (client, server):
                end.close()

    def close(self) -> None:
        self._listener.close()
        self.shut()


@pytest.fixture
def gate(api: Api, tmp_path: Path) -> Iterator[tuple[Gate, str]]:
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster = config["clusters"][0]["cluster"]
    server = urlsplit(cluster["server"])
    made = Gate(str(server.hostname), server.port or 443)
    cluster.update({"server": f"https://127.0.0.1:{made.port}", "tls-server-name": str(server.hostname)})
    file = tmp_path / "through-the-gate"
    file.write_text(yaml.safe_dump(config))
    yield made, str(file)
    made.close()


def test_an_api_server_that_is_away_for_a_while_costs_nothing(api: Api, gate: tuple[Gate, str], tmp_path: Path) -> None:
    made, config = gate
    process = begin(tmp_path / "d", "scale-to-zero", KUBECONFIG=config)
    await_phase(tmp_path / "d", "fault", process, lambda: printed(process))
    time.sleep(3)
    made.shut()
    time.sleep(8)
    made.is_open = True
    end(process)
    (episode,) = (tmp_path / "d" / "episodes").iterdir()
    assert read_label(episode).verdict == "manifest"
    view = EpisodeView(episode)
    lines = view.logs()
    frontend = lines[lines["service"] == "frontend"].sort_values("time")
    assert frontend["time"].diff().dt.total_seconds().max() < 6, "no gap in the logs while it was away"
    assert not frontend.duplicated(["time", "message"]).any()
    assert not [n for n in list_namespaces(api) if n["metadata"]["name"].startswith("hotel-")]


@pytest.fixture
def unprivileged(api: Api) -> Iterator[None]:
    """Forbid pods that see the processes of their node."""
    name = f"no-host-processes-{secrets.token_hex(3)}"
    group = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    check = {"expression": "!has(object.spec.hostPID) || !object.spec.hostPID", "message": "no host processes here"}
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [check]},
    }
    binding = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    paths = {
        f"/apis/{group}/validatingadmissionpolicies": policy,
        f"/apis/{group}/validatingadmissionpolicybindings": binding,
    }
    for path, body in paths.items():
        api.post(path, body)
    time.sleep(3)
    yield
    for path in reversed(paths):
        api.call("DELETE", f"{path}/{name}")


def test_where_no_agent_may_run_a_container_in_every_pod_makes_loss_and_shows_nowhere(
    api: Api, unprivileged: None, tmp_path: Path
) -> None:
    out = tmp_path / "d"
    said = end(begin(out, "network-loss"))
    (episode,) = (out / "episodes").iterdir()
    assert read_label(episode).verdict in ("manifest", "latent"), said
    assert any(record.get("verb") == "impair" for record in read_journal(episode))
    view = EpisodeView(episode)
    assert "network" not in set(view.metrics()["container"].dropna().astype(str))
    assert not view.events()["message"].astype(str).str.contains("container: network|container network").any()
    refused = begin(tmp_path / "e", "container-kill")
    assert refused.stderr is not None
    text = refused.communicate(timeout=200)[1]
    assert refused.returncode == 4
    assert "cannot do kill" in text
