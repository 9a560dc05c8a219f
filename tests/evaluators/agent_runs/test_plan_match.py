"""Plan match says what a proposal aims at, and never that it would have worked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faultset.agents.runs.recorded_commands import RecordedCommand, recorded_commands
from faultset.agents.trajectories.model import Trajectory
from faultset.agents.trajectories.writing import TrajectoryWriter
from faultset.evaluators.agent_runs.plan_match import plan_match as matched
from faultset.evaluators.cli.plan_match import plan_match

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
PORT = {"spec": {"ports": [{"name": "8083", "port": 8083, "targetPort": 8083}]}}
JOURNAL: list[dict[str, Any]] = [
    {
        "state": "intent",
        "time_ns": 100,
        "verb": "patch",
        "args": {"kind": "Service", "name": "geo", "change": {}},
        "inverse": [{"verb": "patch", "kind": "Service", "name": "geo", "change": PORT}],
    },
    {
        "state": "intent",
        "time_ns": 500,
        "verb": "patch",
        "args": {},
        "inverse": [{"verb": "patch", "kind": "Deployment", "name": "user", "change": {"spec": {"x": 1}}}],
    },
]


def run_of(*lines: str) -> Trajectory:
    writer = TrajectoryWriter("shell", version="1", model=None)
    writer.said("user", "repair it")
    for line in lines:
        writer.acted("", calls=[("kubectl", {"command": line})], results=["output"])
    return writer.trajectory()


def of(*lines: str) -> list[RecordedCommand]:
    return recorded_commands(run_of(*lines))


def patch(content: object) -> str:
    return f"kubectl patch service/geo -p '{json.dumps(content)}'"


@pytest.mark.parametrize(
    ("lines", "target", "field", "kind", "value"),
    [
        ((patch({"spec": {"ports": [{"port": 8083, "targetPort": 8083}]}}),), True, True, True, True),
        ((patch({"spec": {"ports": [{"port": 8083, "targetPort": 9999}]}}),), True, True, True, False),
        (
            ('kubectl patch svc geo --type json -p \'[{"op": "replace", "path": "/spec/ports/0/targetPort"}]\'',),
            True,
            True,
            True,
            False,
        ),
        (("kubectl label svc geo a=b",), True, False, True, False),
        (("kubectl delete svc geo",), True, False, False, False),
        (("kubectl rollout restart deploy/geo",), False, False, False, False),
        (("kubectl scale deploy user --replicas 2",), False, False, False, False),
        (("kubectl get svc geo",), False, False, False, False),
        (("kubectl apply -f geo.yaml",), None, None, None, None),
        (("kubectl delete pods -l app=geo",), None, None, None, None),
        (("kubectl patch svc geo -p not-json",), None, None, None, None),
    ],
)
def test_a_proposal_is_compared_with_the_undo_of_the_injection_alone(
    lines: tuple[str, ...], target: bool | None, field: bool | None, kind: bool | None, value: bool | None
) -> None:
    match = matched(of(*lines), JOURNAL, 50, 200)
    assert (match.target, match.field, match.kind, match.value) == (target, field, kind, value)


def test_a_killed_pod_is_matched_by_a_restart_of_its_workload() -> None:
    journal = [
        {
            "state": "intent",
            "time_ns": 1,
            "verb": "delete",
            "inverse": [],
            "args": {"kind": "Pod", "name": "geo-7d5f6d4c9b-x2k4f"},
        }
    ]
    for line in ("kubectl rollout restart deploy geo", "kubectl delete pod geo-84fb7c8f7b-vvvtz"):
        match = matched(of(line), journal, 0, 2)
        assert (match.target, match.field, match.kind) == (True, None, True)


def test_the_command_reads_the_journal_of_an_episode_and_calls_nothing_success(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    right = '{"spec": {"ports": [{"name": "8081", "port": 8081, "targetPort": 8081}]}}'
    file.write_bytes(run_of(f"kubectl patch svc profile --type merge -p '{right}'").to_json())
    result = CliRunner().invoke(plan_match, [str(file), str(SAMPLE), "--episode", "01084746c57a", "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert (record["fault"], record["target"], record["value"]) == ("target-port", True, True)
    assert "success" not in record
    result = CliRunner().invoke(plan_match, [str(file), str(SAMPLE), "--episode", "0d3c530732fb"])
    assert result.exit_code == 2
    assert "has no fault whose undo could be matched" in result.output
