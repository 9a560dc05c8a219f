"""An agent with a scripted model repairs a service on the embedded platform, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.agents.runs.storage import read_runs
from faultset.collector.campaigns.mitigations import read_mitigations
from faultset.collector.cli.mitigate import mitigate
from tests.agents.chat_server import chat_server, in_turn, said
from tests.collector.mitigation.test_attempts import RIGHT

pytestmark = pytest.mark.slow


def test_an_agent_repairs_a_live_service_that_telemetry_and_kubectl_show(tmp_path: Path) -> None:
    script = in_turn(
        said("graph", ("service_graph", {}), ("compare_metrics", {}), ("get_logs", {"service": "search"})),
        said("look", ("kubectl", {"command": "kubectl get svc geo -o yaml | grep -i port"})),
        said("elsewhere", ("kubectl", {"command": "kubectl -n kube-system delete pod --all"})),
        said("repair", ("kubectl", {"command": RIGHT})),
        said("wait", ("wait", {"seconds": 5})),
        said("done", ("submit_mitigation", {"summary": "the port of geo"})),
    )
    out = tmp_path / "mitigations"
    with chat_server(script) as server:
        arguments = ["--faults", "target-port", "--apps", "hotel", "--targets", "geo", "--rate", "10", "-j", "1"]
        arguments += ["--agents", "react", "--model", "m", "--base-url", server.base_url, "--repairs", "none"]
        result = CliRunner().invoke(mitigate, [*arguments, "--out", str(out), "--json"])
        told = [one["content"] for one in server.requests[-1]["messages"] if one["role"] == "tool"]
    assert result.exit_code == 0, result.output
    (one,) = read_mitigations(out)
    assert one.result is not None
    assert one.result.success, one.result.parts
    assert [command.status for command in one.result.commands] == ["done", "refused", "done"]
    assert "search" in told[0]
    assert "http_server_request_duration_seconds" in told[1]
    assert "targetPort" in told[3]
    (run,) = read_runs(out / "agent-runs")
    assert (run.status, run.run, run.model) == ("ok", one.id, "m")
    assert json.loads(result.stdout)[0]["result"]["mitigator"]["run"] == one.id
