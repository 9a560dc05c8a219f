"""The command `mitigate`: what it refuses before anything is deployed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from faultset.collector.cli.mitigate import describe_failed_commands, mitigate
from faultset.collector.mitigation.messages import CommandResult, CommandStatus

HOTEL = ["--faults", "target-port", "--apps", "hotel"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "must come from exactly one of PLAN, EPISODE, or --faults"),
        (["plan.json", *HOTEL], "must come from exactly one of PLAN, EPISODE, or --faults"),
        (["--faults", "target-port"], "--faults needs --apps"),
        ([*HOTEL, "--repairs", "pray"], 'unknown repair "pray"'),
        ([*HOTEL, "--repairs", ""], "needs a repair, but none is chosen. Give a file with --commands"),
        ([*HOTEL, "--within", "5s"], "healthy for at least 2 s"),
        (["plan.json", "--spread"], "--spread distributes --faults over --apps"),
        (["--faults", "noop", "--apps", "hotel"], "has no fault to repair"),
        ([*HOTEL, "--commands", "missing.txt"], "missing.txt is missing"),
        ([*HOTEL, "--platform", "moon"], 'unknown platform "moon"'),
        ([*HOTEL, "--injector", "chaos-mesh"], "platform local does not support --injector"),
        ([*HOTEL, "--repairs", "none"], "needs a repair, but none is chosen. Give a file with --commands"),
        ([*HOTEL, "--operator", "nowhere"], "--operator must be the Unix socket of a listening program"),
        ([*HOTEL, "--operator", "nowhere", "--within", "5s"], "healthy for at least 2 s"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(mitigate, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_command_for_a_shell_is_refused_with_its_line_before_anything_is_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("repair.txt").write_text("kubectl get pods\nkubectl get pods | grep geo\n")
    result = CliRunner().invoke(mitigate, [*HOTEL, "--commands", "repair.txt"])
    assert result.exit_code == 2
    assert "repair.txt, line 2: '|' needs a shell" in result.output
    assert not Path("faultset-mitigations").exists()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("plan.json", "[]", "must hold an object"),
        ("plan.json", json.dumps({"episode": "x"}), "restore the file"),
        ("missing.json", None, "missing.json is missing"),
    ],
)
def test_a_plan_that_cannot_be_read_is_an_error_of_data(
    tmp_path: Path, name: str, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    result = CliRunner().invoke(mitigate, [str(tmp_path / name), "--repairs", "do-nothing"])
    assert result.exit_code == 3
    assert sentence in result.output


@pytest.mark.parametrize("out", ["file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_one_sentence(out: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    words = ["--faults", "target-port", "--apps", "hotel", "--targets", "geo", "--repairs", "do-nothing"]
    done = CliRunner().invoke(mitigate, [*words, "--out", str(tmp_path / out)])
    assert done.exit_code == 3
    assert "Choose another" in done.output


def test_commands_that_failed_are_counted_and_the_first_is_named() -> None:
    statuses: dict[str, CommandStatus] = {"web": "done", "geo": "failed", "all": "refused"}
    commands = [
        CommandResult(line=f"kubectl get svc {name}", status=status, output=f"{name} is there", took_s=0.0)
        for name, status in statuses.items()
    ]
    attempt = SimpleNamespace(
        plan=SimpleNamespace(title="target-port on web"), result=SimpleNamespace(commands=commands)
    )
    campaign: Any = SimpleNamespace(mitigations=[attempt, SimpleNamespace(result=None)])
    assert describe_failed_commands(campaign) == [
        'target-port on web: 2 of 3 commands failed; first, "kubectl get svc geo": geo is there'
    ]
