"""What a run inspected is read from its calls and observations."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.agents.cli import commands
from faultset.agents.runs.trajectory_contents import find_inspected_services, recorded_commands
from faultset.agents.trajectory import Trajectory, TrajectoryWriter

SERVICES = ("geo", "mongodb-geo", "rate")


def trajectory(*steps: tuple[str, dict[str, str], str]) -> Trajectory:
    writer = TrajectoryWriter("a")
    writer.add_message("user", "look at geo")
    for name, arguments, result in steps:
        writer.add_agent_step("", calls=[(name, arguments)], results=[result])
    return writer.trajectory()


def test_calls_are_counted_without_the_submission() -> None:
    services = find_inspected_services(
        trajectory(("kubectl", {}, ""), ("kubectl", {}, ""), ("submit_all", {"services": "geo"}, "")), SERVICES
    )
    assert services.calls == {"kubectl": 2}
    assert not services.requested


def test_a_pod_is_its_service_and_a_longer_name_is_not_a_shorter_one() -> None:
    services = find_inspected_services(
        trajectory(
            ("kubectl", {"command": "kubectl logs mongodb-geo-66bd4f866d-8tfk5"}, "rate-66bd4f866d-8tfk5 failed")
        ),
        SERVICES,
    )
    assert (services.requested, services.observed) == ({"mongodb-geo"}, {"rate"})


def test_a_list_of_all_services_shows_none() -> None:
    services = find_inspected_services(trajectory(("describe_system", {}, "geo, mongodb-geo, rate")), SERVICES)
    assert services.observed == frozenset()


def test_no_candidates_and_text_of_any_length_are_read() -> None:
    assert find_inspected_services(trajectory(("kubectl", {"c": "geo"}, "x" * 420_000)), ()).requested == frozenset()


def load_run(*texts: str, tool: str = "exec_shell", key: str = "command") -> Trajectory:
    writer = TrajectoryWriter("shell", version="1", model=None)
    writer.add_message("user", "repair it")
    for text in texts:
        writer.add_agent_step("", calls=[(tool, {key: text})], results=["output"])
    return writer.trajectory()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("kubectl scale deploy geo --replicas 1 -n test", ["kubectl scale deploy geo --replicas 1"]),
        ("kubectl scale deploy geo --replicas 1 | cat", ["kubectl scale deploy geo --replicas 1"]),
        ("kubectl scale deploy geo --replicas=1 --namespace=test", ["kubectl scale deploy geo --replicas=1"]),
        ("kubectl -n other delete pod x", ["kubectl -n other delete pod x"]),
        ("kubectl delete pod a 2>/dev/null; sleep 5 && kubectl delete pod b 2>&1 | head", None),
        ("kubectl patch svc geo -p '{\"a\": \"it''s\"}'", ['kubectl patch svc geo -p \'{"a": "its"}\'']),
        ("echo hello", []),
    ],
)
def test_a_command_is_taken_alone_and_without_the_namespace_of_the_recording(
    text: str, lines: list[str] | None
) -> None:
    wanted = ["kubectl delete pod a", "sleep 5", "kubectl delete pod b"] if lines is None else lines
    found = recorded_commands(load_run(text), "test")
    assert [one.line for one in found] == wanted
    assert all(one.changes and not one.problem for one in found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kubectl apply -f - <<EOF\nkind: Service\nEOF", "here-document"),
        ("kubectl delete pod $(kubectl get pods -o name)", "needs a shell"),
        ("for pod in a b; do kubectl delete pod $pod; done", "needs a shell"),
        ("kubectl get svc geo -o yaml > geo.yaml", "goes to a file"),
        ("kubectl delete pod `cat name`", "needs a shell"),
        ("kubectl delete pod 'geo", "quote is not closed"),
    ],
)
def test_what_only_a_shell_understands_is_named_and_not_given_again(text: str, reason: str) -> None:
    assert any(reason in one.problem for one in recorded_commands(load_run(text)))


def test_reads_change_nothing_and_the_keys_of_other_agents_are_known() -> None:
    texts = ("kubectl get pods", "kubectl rollout status deploy/geo", "kubectl rollout restart deploy/geo")
    found = recorded_commands(load_run(*texts, tool="run_shell_command", key="cmd"))
    assert [one.changes for one in found] == [False, False, True]


def test_the_command_prints_a_file_of_commands(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(load_run("kubectl get pods", "kubectl delete pod geo-84fb7c8f7b-vvvtz -n test").to_json())
    result = CliRunner().invoke(commands, [str(file), "--namespace", "test"])
    assert result.exit_code == 0
    assert result.stdout == "# step 2, read-only: kubectl get pods\nkubectl delete pod geo-84fb7c8f7b-vvvtz\n"
    assert "1 of 2 commands" in result.stderr
