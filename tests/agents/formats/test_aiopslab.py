"""The table of what AIOpsLab's parsers do, old and new, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faultset.agents import ScoredRun, import_runs, read_trajectory, score_runs
from faultset.agents.formats.aiopslab import (
    NEW_GRAMMAR_S,
    NO_CALL,
    ONE_BLOCK,
    UNQUOTED_COMMAND,
    UNSUPPORTED_VALUE,
    ActionCall,
    ActionError,
    choose_grammar,
    label_of,
    parse_action,
    read_submission,
    task_of,
)
from faultset.core.errors import DataError
from tests.agents.conftest import START_S, Session, said

GEO = ActionCall("get_logs", ("ns", "geo"))
ROWS = [
    ('```\nget_logs("ns","geo")\n```', GEO, GEO),
    ('I look at the logs first.\n\nAction:\n```\nget_logs("ns","geo")\n```', GEO, GEO),
    ('```python\nget_logs("ns","geo")\n```', ONE_BLOCK, GEO),
    ("Action:```\nsubmit('yes')\n```", ActionCall("submit", ("yes",)), ActionCall("submit", ("yes",))),
    ('```submit("Yes")```', ONE_BLOCK, NO_CALL),
    ('submit("Yes")', ONE_BLOCK, NO_CALL),
    ('``\nsubmit("Yes")\n``', ONE_BLOCK, NO_CALL),
    ("", ONE_BLOCK, NO_CALL),
    ('```\nget_logs("ns","geo")\n```\nthen\n```\nsubmit("Yes")\n```', ONE_BLOCK, GEO),
    ('```\nexec_shell("ls", timeout=5)\n```', UNQUOTED_COMMAND, UNQUOTED_COMMAND),
    ('```\nexec_shell("ls -l")\n```', ActionCall("exec_shell", ("ls -l",)), ActionCall("exec_shell", ("ls -l",))),
    (
        '```\nexec_shell("echo \\"hi\\"")\n```',
        ActionCall("exec_shell", ('echo "hi\\',)),
        ActionCall("exec_shell", ('echo "hi\\',)),
    ),
    (
        '```\nsubmit(faulty_components=["geo"])\n```',
        ActionCall("submit", (), {"faulty_components": ["geo"]}),
        ActionCall("submit", (), {"faulty_components": ["geo"]}),
    ),
    ('```\nsubmit(("a","b"))\n```', ActionCall("submit", (["a", "b"],)), ActionCall("submit", (["a", "b"],))),
    ("```\nsubmit(Yes)\n```", UNSUPPORTED_VALUE, UNSUPPORTED_VALUE),
    ("```\nsubmit(-1)\n```", UNSUPPORTED_VALUE, UNSUPPORTED_VALUE),
]


@pytest.mark.parametrize(("text", "new", "old"), ROWS)
def test_a_message_is_read_as_its_grammar_reads_it(text: str, new: object, old: object) -> None:
    for grammar, wanted in (("new", new), ("old", old)):
        found = parse_action(text, grammar)  # type: ignore[arg-type]
        assert (found.reason if isinstance(found, ActionError) else found) == wanted


@pytest.mark.parametrize(
    "code",
    [
        "submit(" * 3000,
        "submit(" + "[" * 5000 + ")",
        "submit(**{})",
        "submit(1 for x in y)",
        "a.submit('x')",
        "submit('\\d')",
    ],
)
def test_any_text_is_a_call_or_an_error(code: str) -> None:
    assert isinstance(parse_action(f"```\n{code}\n```", "new"), ActionCall | ActionError)


def test_the_grammar_follows_the_day() -> None:
    assert (choose_grammar(NEW_GRAMMAR_S - 1), choose_grammar(NEW_GRAMMAR_S)) == ("old", "new")


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (ActionCall("submit", ("Yes",)), ("Yes",)),
        (ActionCall("submit", (), {"faulty_components": ["geo"]}), (["geo"],)),
        (ActionCall("submit", (), {"a": 1, "b": 2}), ()),
        (ActionCall("submit"), ()),
    ],
)
def test_an_answer_is_the_first_argument_or_the_only_keyword(call: ActionCall, value: tuple[object, ...]) -> None:
    assert read_submission(call) == value


DAY_S = 86_400.0
AFTER_S = START_S + 120 * DAY_S


def score_answer(file: Path, tmp_path: Path, **options: Any) -> ScoredRun:
    import_runs("aiopslab", file, tmp_path / "runs", **options)
    return score_runs(tmp_path / "runs")[0]


@pytest.mark.parametrize(
    ("problem_id", "task"),
    [
        ("k8s_target_port-misconfig-detection-1", "detection"),
        ("noop_detection_hotel_reservation-1", "detection"),
        ("redeploy_without_PV-analysis-1", "diagnosis"),
        ("container_kill-localization", "localization"),
        ("astronomy_shop_kafka_queue_problems-mitigation-1", "mitigation"),
        ("something", "other"),
    ],
)
def test_the_task_is_the_word_in_the_problem_id(problem_id: str, task: str) -> None:
    assert task_of(problem_id) == task


def test_an_unknown_problem_has_a_fault_unless_it_is_noop() -> None:
    for problem_id, fault in (("cpu_stress_hotel_res-detection-1", True), ("noop_detection_new_app-1", False)):
        label = label_of(problem_id)
        assert label is not None
        assert label.fault is fault
        assert label.version.startswith("rule")


@pytest.mark.parametrize(
    ("problem_id", "call", "status", "success"),
    [
        ("misconfig_app_hotel_res-detection-1", 'submit(" yes ")', "ok", True),
        ("misconfig_app_hotel_res-detection-1", 'submit("No")', "ok", False),
        ("misconfig_app_hotel_res-detection-1", 'submit("maybe")', "invalid", False),
        ("misconfig_app_hotel_res-detection-1", "submit(Yes)", "unparsed", False),
        ("misconfig_app_hotel_res-detection-1", "submit()", "invalid", False),
        ("misconfig_app_hotel_res-localization-1", 'submit(["geo"])', "ok", True),
        ("misconfig_app_hotel_res-localization-1", 'submit("geo")', "ok", True),
        ("misconfig_app_hotel_res-localization-1", 'submit(["Geo"])', "ok", False),
        ("misconfig_app_hotel_res-localization-1", "submit([])", "ok", False),
        ("misconfig_app_hotel_res-localization-1", "submit([1])", "invalid", False),
        (
            "misconfig_app_hotel_res-analysis-1",
            'submit({"system_level": "application", "fault_type": " Misconfiguration "})',
            "ok",
            True,
        ),
        ("misconfig_app_hotel_res-analysis-1", 'submit({"system_level": "App", "fault_type": "x"})', "invalid", False),
        ("misconfig_app_hotel_res-mitigation-1", "submit()", "ok", None),
        ("cpu_stress_hotel_res-localization-1", 'submit(["user"])', "ok", None),
    ],
)
def test_an_answer_is_scored_by_the_label_of_its_problem(
    problem_id: str, call: str, status: str, success: bool | None, session: Session, tmp_path: Path
) -> None:
    found = score_answer(session(said(call), problem_id=problem_id), tmp_path)
    assert (found.run.status, found.success) == (status, success)


def test_the_right_service_among_others_is_worth_its_share(session: Session, tmp_path: Path) -> None:
    file = session(said('submit(["geo", "rate"])'), problem_id="misconfig_app_hotel_res-localization-1")
    found = score_answer(file, tmp_path)
    assert (found.success, found.value) == (False, 0.5)


def test_the_last_of_two_answers_counts(session: Session, tmp_path: Path) -> None:
    assert score_answer(session(said('submit("No")'), said('submit("Yes")')), tmp_path).run.answer == {"fault": True}


def test_a_label_that_changed_since_explains_another_result(session: Session, tmp_path: Path) -> None:
    file = session(
        said('submit(["geo"])'),
        problem_id="revoke_auth_mongodb-localization-1",
        results={"success": False, "Localization Accuracy": 0.0},
    )
    found = score_answer(file, tmp_path)
    assert (found.success, found.agrees) == (True, False)
    assert found.difference.startswith("label changed on 2025-10-11")


def test_a_label_that_changed_before_explains_nothing(session: Session, tmp_path: Path) -> None:
    file = session(
        said('submit(["geo"])'),
        problem_id="revoke_auth_mongodb-localization-1",
        start_time=AFTER_S,
        end_time=AFTER_S + 5,
        results={"success": False},
    )
    assert score_answer(file, tmp_path).difference == ""


def test_the_moved_system_level_explains_another_result(session: Session, tmp_path: Path) -> None:
    file = session(
        said('submit({"system_level": "Virtualization", "fault_type": "Misconfiguration"})'),
        problem_id="auth_miss_mongodb-analysis-1",
        results={"success": True},
    )
    found = score_answer(file, tmp_path)
    assert (found.success, found.difference[:27]) == (False, "label changed on 2025-11-06")


def test_an_answer_by_keyword_is_read_though_its_source_loses_it(session: Session, tmp_path: Path) -> None:
    file = session(
        said('submit(faulty_components=["geo"])'),
        problem_id="misconfig_app_hotel_res-localization-1",
        results={"success": False},
    )
    found = score_answer(file, tmp_path)
    assert (found.success, found.truth.recorded["answer_read_by_source"]) == (True, [])
    assert "keyword" in found.difference


def test_every_call_is_a_tool_call_with_its_reply(session: Session, tmp_path: Path) -> None:
    file = session(
        said('exec_shell("kubectl get pods")'),
        "no block",
        said('submit("Yes")'),
        replies=("pods", "Error parsing response: No API call found!", "1"),
    )
    found = score_answer(file, tmp_path)
    trajectory = read_trajectory(tmp_path / "runs" / found.run.trajectory_path)
    calls = [call for step in trajectory.steps for call in step.tool_calls or ()]
    assert [(call.function_name, call.arguments) for call in calls] == [
        ("exec_shell", {"command": "kubectl get pods"}),
        ("submit", {"argument_1": "Yes"}),
    ]
    run = found.run
    assert (run.steps, run.tool_calls, run.tool_errors, run.tokens_source) == (3, 2, 1, "estimated")
    assert run.seconds == 30.0


def test_the_prompt_of_a_conversation_is_the_first_step(session: Session, tmp_path: Path) -> None:
    prompt = repr([{"role": "system", "content": "You are an operator."}, {"role": "user", "content": "Go"}])
    file = session(
        said('submit("Yes")'),
        conversation=[{"prompt": prompt, "response": "x"}],
        canonical_problem_id="misconfig_app_hotel_res-detection-1",
        problem_id="misconfig_app_hotel_res-detection-1__variant",
        variant_context=None,
        results={"Detection Accuracy": "Correct", "supervisor_result": True},
    )
    found = score_answer(file, tmp_path)
    trajectory = read_trajectory(tmp_path / "runs" / found.run.trajectory_path)
    assert (trajectory.steps[0].source, trajectory.steps[0].text) == ("system", "You are an operator.")
    assert found.agrees


def test_what_the_service_writes_has_prompts_in_front_and_no_last_reply(session: Session, tmp_path: Path) -> None:
    file = session(said('submit("Yes")'))
    document = json.loads(file.read_text())
    document["trace"] = [
        {"role": "system", "content": "task"},
        {"role": "user", "content": "go"},
        *document["trace"][:-1],
    ]
    del document["session_id"]
    file.write_text(json.dumps(document))
    found = score_answer(file, tmp_path)
    trajectory = read_trajectory(tmp_path / "runs" / found.run.trajectory_path)
    assert [step.source for step in trajectory.steps] == ["system", "user", "agent"]
    assert found.success


@pytest.mark.parametrize(
    ("messages", "replies", "status"),
    [
        ([said('exec_shell("ls")')] * 29 + [said('exec_shell("pwd")')], (), "step_limit"),
        ([said('exec_shell("ls")')] * 7, (), "no_answer"),
        (["Error occurred while calling API: Error code: 401"] * 3 + [said('submit("Yes")')] * 2, (), "harness_error"),
        ([""] * 30, (), "harness_error"),
        (["Error code: 429", said('exec_shell("ls")'), said('submit("Yes")')], (), "ok"),
        (
            [
                said('exec_shell("kubectl exec p -- bash /scripts/revoke-mitigate-admin.sh")'),
                said("submit()"),
            ],
            ("ok",),
            "cheated",
        ),
        ([said('exec_shell("cat /scripts/revoke-mitigate-admin.sh")'), said('submit("Yes")')], ("text",), "ok"),
        (
            [said('exec_shell("kubectl get networkchaos -A")'), said('submit("Yes")')],
            ("NAMESPACE NAME\nns delay",),
            "cheated",
        ),
        ([said('exec_shell("kubectl get podchaos")'), said('submit("Yes")')], ("No resources found",), "ok"),
        ([said('exec_shell("kubectl get pods -A | grep -v podchaos")'), said('submit("Yes")')], ("geo 1/1",), "ok"),
        ([said('exec_shell("kubectl delete networkchaos delay")'), said("submit()")], ("deleted",), "cheated"),
    ],
)
def test_the_status_says_how_a_run_ended(
    messages: list[str], replies: tuple[str, ...], status: str, session: Session, tmp_path: Path
) -> None:
    found = score_answer(session(*messages, replies=replies), tmp_path)
    assert found.run.status == status
    if status in ("harness_error", "cheated"):
        assert found.success is False
        assert found.run.status_reason


def test_a_service_that_is_no_candidate_is_invalid(session: Session, tmp_path: Path) -> None:
    file = session(said('submit(["geo2"])'), problem_id="misconfig_app_hotel_res-localization-1")
    assert score_answer(file, tmp_path, candidates=["geo", "rate"]).run.status == "invalid"


def test_a_file_of_no_known_format_is_not_asked_to_be_restored(tmp_path: Path) -> None:
    (tmp_path / "foreign.json").write_text('{"foo": 1}')
    with pytest.raises(DataError, match=r"not a session of AIOpsLab: .*problem_id.*; give another file$"):
        import_runs("aiopslab", tmp_path, tmp_path / "out")
