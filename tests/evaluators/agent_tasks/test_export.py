"""Which episodes become tasks, and what the folders of Harbor hold."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultset.core.errors import FaultsetError, UsageError
from faultset.datasets import EpisodeView, open_dataset
from faultset.evaluators.agent_tasks.export import export_tasks
from faultset.evaluators.cli.agent_tasks import export, grade

from .conftest import FAULTY, SAMPLE


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "tasks"
    export_tasks(SAMPLE, out, "harbor", episodes=[FAULTY])
    return next(path for path in out.iterdir() if path.is_dir())


def test_the_answer_stands_in_the_tests_alone(harbor: Path) -> None:
    label = json.loads((harbor / "tests" / "label.json").read_text())
    assert (label["causes"], label["fault_type"]) == ([["geo"]], "Operation Error")
    inside = [path for path in harbor.rglob("*") if path.is_file()]
    named = [path.name for path in inside if FAULTY.encode() in path.read_bytes()]
    assert named == []
    for path in inside:
        if path.parent.name != "tests":
            assert b"pod-failure" not in path.read_bytes(), path
    index = json.loads((harbor.parent / "episodes.json").read_text())
    assert index["episodes"] == {harbor.name: FAULTY}


def test_the_recording_is_the_view_without_what_clients_saw(harbor: Path) -> None:
    recording = EpisodeView(harbor / "environment" / "recording")
    whole = open_dataset(SAMPLE).view(FAULTY)
    assert recording.table("spans").drop_columns(["episode"]).equals(whole.table("spans").drop_columns(["episode"]))
    assert set(recording.table("metrics")["episode"].to_pylist()) == {harbor.name}
    assert recording.table("requests").num_rows == 0
    assert whole.table("requests").num_rows > 0


def test_the_configuration_starts_the_server_and_judges_apart_from_the_agent(harbor: Path) -> None:
    config = tomllib.loads((harbor / "task.toml").read_text())
    server = config["environment"]["mcp_servers"][0]
    assert (server["command"], server["args"][:3]) == ("faultset", ["agents", "serve", "/recording"])
    assert config["verifier"]["environment_mode"] == "separate"
    assert config["artifacts"] == [server["args"][4]]
    assert "geo" in (harbor / "instruction.md").read_text()


def test_harbor_takes_the_folder(harbor: Path) -> None:
    pytest.importorskip("harbor", reason="Harbor is not installed")
    from harbor.models.task.task import Task  # pyright: ignore[reportMissingImports]

    assert Task.is_valid_dir(harbor)


@pytest.mark.slow
def test_a_client_answers_over_the_exported_server_and_the_exported_test_judges_it(
    harbor: Path, tmp_path: Path
) -> None:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp import Client, StdioServerParameters

    answer, reward = tmp_path / "answer.json", tmp_path / "reward.json"
    arguments = tomllib.loads((harbor / "task.toml").read_text())["environment"]["mcp_servers"][0]["args"]
    places = {"/recording": str(harbor / "environment" / "recording"), "/app/answer.json": str(answer)}
    program = tmp_path / "bin" / "faultset"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom faultset.core.start import faultset\nfaultset()\n")
    program.chmod(0o755)

    async def talk() -> None:
        given = [str(places.get(argument, argument)) for argument in arguments]
        async with Client(StdioServerParameters(command=str(program), args=given)) as client:
            logs = await client.call_tool("get_logs", {"service": "frontend", "limit": 3})
            assert logs.structured_content in ({"status": "ok"}, {"status": "empty"})
            done = {"fault": True, "services": ["geo"], "system_level": "Virtualization"}
            await client.call_tool("submit_all", done | {"fault_type": "Operation Error"})
            # a client may end the server without notice once it has been told
            assert json.loads(answer.read_text())["answer"]["services"] == ["geo"]

    asyncio.run(talk())
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(harbor / "tests" / "test.sh"), str(answer), str(reward)]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    assert json.loads(reward.read_text())["reward"] == 1.0


def test_faults_that_nothing_has_shown_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from faultset.evaluators.agent_tasks import episodes as module

    monkeypatch.setattr(module, "_UNSEEN", ("latent",))
    done = export_tasks(SAMPLE, tmp_path / "tasks", "inspect")
    latent = [one for one in open_dataset(SAMPLE).episodes if open_dataset(SAMPLE).label(one).verdict == "latent"]
    assert latent
    assert done.left_out == dict.fromkeys(latent, "nothing is known to have shown the fault")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": "repair"}, 'the task "repair" is unknown'),
        ({"episodes": ["nowhere"]}, "nowhere"),
        ({"install": "x.whl"}, "there is no such wheel"),
        ({"install": 'x"; rm'}, "one requirement without quotes"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export_tasks(SAMPLE, tmp_path / "tasks", "harbor", **changed)  # type: ignore[arg-type]
    assert not (tmp_path / "tasks").exists()


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(FaultsetError, match=r"choose|empty|exists"):
        export_tasks(SAMPLE, tmp_path, "inspect")
    assert list(tmp_path.iterdir()) == [mine]


def test_the_commands_export_and_grade(tmp_path: Path) -> None:
    runner = CliRunner()
    out = tmp_path / "tasks"
    made = runner.invoke(export, [str(SAMPLE), str(out), "--as", "harbor", "--episodes", FAULTY])
    assert (made.exit_code, made.output.splitlines()[-1]) == (0, f"1 tasks in {out}.")
    folder = next(path for path in out.iterdir() if path.is_dir())
    missing = [str(folder / "tests" / "label.json"), str(tmp_path / "none.json")]
    assert json.loads(runner.invoke(grade, missing).output)["reward"] == 0.0
    wrong = runner.invoke(export, [str(SAMPLE), str(tmp_path / "x"), "--as", "terminal"])
    assert 'the layout "terminal" is unknown; layouts are inspect, harbor' in wrong.output
