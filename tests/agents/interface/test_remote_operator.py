"""A program at a Unix socket repairs a live fault on the platform in memory; it is judged and undone afterwards."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from faultset.agents.interface.remote_operator import OperatorConnection
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.mitigation.repairs import build_operator_order
from faultset.core.errors import PlatformError, UsageError
from tests.collector.mitigation.test_attempts import RIGHT, result_of, run_mitigation, wrong_parts

Work = Callable[[OperatorConnection], None]


def call(connection: OperatorConnection, name: str, **arguments: Any) -> Any:
    return anyio.run(connection.call, name, arguments)


def kubectl(connection: OperatorConnection, command: str) -> str:
    return call(connection, "kubectl", command=command).text


@contextmanager
def operator(folder: Path, work: Work) -> Iterator[RepairOrder]:
    """Listen like the Inspect task does, and work on the connection in a thread."""
    failures: list[BaseException] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "operator"))
        listener.listen(1)
        listener.settimeout(30)

        def serve() -> None:
            connection = OperatorConnection(listener.accept()[0])
            try:
                work(connection)
            except BaseException as failure:
                failures.append(failure)
            finally:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield build_operator_order(folder / "operator", within_s=4, sustain_s=3)
        thread.join(30)
    assert failures == []


def repaired(folder: Path, work: Work) -> MitigationResult:
    with operator(folder, work) as order:
        return result_of(folder / "ran", order)


def test_a_program_that_finds_the_wrong_port_repairs(tmp_path: Path) -> None:
    def work(connection: OperatorConnection) -> None:
        assert "geo" in connection.candidates
        assert "targetPort" in kubectl(connection, "kubectl get svc geo -o yaml | grep targetPort")
        kubectl(connection, RIGHT)
        call(connection, "wait", seconds=20)
        assert call(connection, "submit_mitigation", summary="the port").report["answer"] == {"summary": "the port"}

    result = repaired(tmp_path, work)
    assert result.success
    assert wrong_parts(result) == set()
    assert result.mitigator is not None
    assert (result.mitigator["status"], result.mitigator["calls"]) == (
        "ok",
        {"kubectl": 2, "wait": 1, "submit_mitigation": 1},
    )


def test_a_program_that_goes_away_hands_the_system_back(tmp_path: Path) -> None:
    result = repaired(tmp_path, lambda connection: None)
    assert not result.success
    assert result.mitigator is not None
    assert result.mitigator["status"] == "no_answer"


def test_a_write_outside_of_the_namespace_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    refusals: list[str] = []

    def work(connection: OperatorConnection) -> None:
        refusals.append(kubectl(connection, "kubectl -n kube-system delete pod --all"))
        refusals.append(kubectl(connection, "kubectl get pods; rm -rf /"))

    with operator(tmp_path, work) as order:
        outcome, platform = run_mitigation(tmp_path / "ran", order)
    (result,) = outcome.mitigations
    assert [one.status for one in result.commands] == ["refused"]
    assert "Refused: namespace kube-system is not the application's" in refusals[0]
    assert "needs a shell" in refusals[1]
    assert not [made for made in platform.calls if made[0] == "delete"]


def test_harm_is_judged_and_undone(tmp_path: Path) -> None:
    def work(connection: OperatorConnection) -> None:
        kubectl(connection, RIGHT)
        kubectl(connection, "kubectl delete svc user search")
        kubectl(connection, "kubectl scale deploy geo --replicas 0")

    result = repaired(tmp_path, work)
    assert not result.success
    assert {"objects", "presence"} <= wrong_parts(result)


def test_an_undo_that_leaves_something_behind_voids_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultset.collector.platforms.fake.FakePlatform.undo", lambda self: None)
    monkeypatch.setattr("faultset.collector.episodes.actions.EpisodeActions._await_recovery", lambda self: None)

    def work(connection: OperatorConnection) -> None:
        kubectl(connection, "kubectl delete svc user")

    with operator(tmp_path, work) as order:
        outcome, _ = run_mitigation(tmp_path / "ran", order)
    assert outcome.failure.startswith("the undo is incomplete: Service user is missing; Service geo")


def test_after_the_submission_the_system_is_out_of_reach(tmp_path: Path) -> None:
    def work(connection: OperatorConnection) -> None:
        call(connection, "submit_mitigation")
        with pytest.raises((PlatformError, OSError)):
            kubectl(connection, "kubectl get pods")

    assert not repaired(tmp_path, work).success


def test_a_socket_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--operator must be the Unix socket of a listening program"):
        build_operator_order(tmp_path / "nothing")
