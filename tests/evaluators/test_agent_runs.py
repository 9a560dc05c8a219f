from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faultset.agents import ScoredRun, import_runs, score_runs
from faultset.core.console import root
from faultset.evaluators.agent_runs import find_result_differences, summarise_agents
from tests.agents.conftest import said, session_document

YES, NO = said('submit("Yes")'), said('submit("No")')
PAIR = 'submit({"system_level": "Application", "fault_type": "Misconfiguration"})'


def scored(tmp_path: Path, *sessions: tuple[str, list[str], dict[str, Any]]) -> list[ScoredRun]:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for number, (problem_id, messages, results) in enumerate(sessions):
        document = session_document(*messages, problem_id=problem_id, results=results)
        (folder / f"{number}.json").write_text(json.dumps(document))
    import_runs("aiopslab", folder, tmp_path / "runs")
    return score_runs(tmp_path / "runs")


@pytest.fixture
def detection(tmp_path: Path) -> list[ScoredRun]:
    right, wrong = {"Detection Accuracy": "Correct"}, {"Detection Accuracy": "Incorrect"}
    return scored(
        tmp_path,
        ("misconfig_app_hotel_res-detection-1", [YES], right),
        ("pod_kill_hotel_res-detection-1", [NO], wrong),
        ("noop_detection_hotel_reservation-1", [YES], wrong),
        ("wrong_bin_usage-detection-1", ["Error code: 401"] * 3, {"Detection Accuracy": "Invalid Format"}),
    )


def test_detection_stands_beside_always_yes(detection: list[ScoredRun]) -> None:
    row = summarise_agents(detection)[0]
    assert (row.control, row.control_success.k, row.control_success.n) == ("always-yes", 3, 4)
    assert (row.detected.k, row.detected.n, row.false_alarms.k, row.false_alarms.n) == (1, 3, 1, 1)
    assert (row.agree, row.compared) == (4, 4)


def test_broken_harnesses_are_misses_in_one_column_and_left_out_in_the_other(detection: list[ScoredRun]) -> None:
    row = summarise_agents(detection)[0]
    assert (row.success.k, row.success.n) == (1, 4)
    assert (row.success_without_harness_errors.k, row.success_without_harness_errors.n) == (1, 3)


def test_diagnosis_stands_beside_the_commonest_pair_of_the_other_problems(tmp_path: Path) -> None:
    wrong = {"success": False}
    found = scored(
        tmp_path,
        ("misconfig_app_hotel_res-analysis-1", [said(PAIR)], {"success": True}),
        ("auth_miss_mongodb-analysis-1", [said(PAIR)], wrong),
        ("wrong_bin_usage-analysis-1", [said(PAIR)], wrong),
    )
    row = summarise_agents(found)[0]
    # of the others: one of two pairs, the same pair twice for wrong_bin_usage, one of two pairs
    assert (row.control, row.control_success.k, row.control_success.n) == ("constant-pair", 1.0, 3)
    assert (row.success.k, row.value.value) == (2, pytest.approx((1 + 1 + 0.5) / 3))


def test_reasons_of_differences_are_counted(tmp_path: Path) -> None:
    wrong = {"success": False}
    found = scored(
        tmp_path,
        ("auth_miss_mongodb-analysis-1", [said(PAIR)], wrong),
        ("misconfig_app_hotel_res-analysis-1", [said(PAIR)], wrong),
    )
    reasons = {one.reason: len(one.runs) for one in find_result_differences(found)}
    assert reasons.pop("not explained") == 1
    assert [*reasons.values()] == [1]
    assert "label changed on 2025-11-06" in next(iter(reasons))


def test_the_command_prints_a_table_and_json(detection: list[ScoredRun], tmp_path: Path) -> None:
    folder = str(tmp_path / "runs")
    table = CliRunner().invoke(root, ["agents", "score", folder])
    assert table.exit_code == 0, table.output
    assert "always-yes 3/4" in table.output
    assert "Harness errors:" in table.output
    printed = CliRunner().invoke(root, ["agents", "score", folder, "--json"])
    document = json.loads(printed.output)
    assert [run["status"] for run in document["runs"]] == ["ok", "ok", "ok", "harness_error"]
    assert document["rows"][0]["control_success"]["k"] == 3


def test_import_without_a_readable_file_ends_with_the_code_of_data(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    result = CliRunner().invoke(root, ["agents", "import", "aiopslab", str(tmp_path / "bad.json"), str(tmp_path / "o")])
    assert result.exit_code == 3
    assert "is not valid JSON" in result.output
