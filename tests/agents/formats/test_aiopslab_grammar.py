"""The table of what AIOpsLab's parsers do, old and new, row by row."""

from __future__ import annotations

import pytest

from faultset.agents.formats.aiopslab.grammar import (
    CHANGED_S,
    NO_CALL,
    NODE,
    ONE_BLOCK,
    QUOTED,
    ActionCall,
    ActionError,
    grammar_at,
    parsed,
    submitted,
)

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
    ('```\nexec_shell("ls", timeout=5)\n```', QUOTED, QUOTED),
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
    ("```\nsubmit(Yes)\n```", NODE, NODE),
    ("```\nsubmit(-1)\n```", NODE, NODE),
]


@pytest.mark.parametrize(("text", "new", "old"), ROWS)
def test_a_message_is_read_as_its_grammar_reads_it(text: str, new: object, old: object) -> None:
    for grammar, wanted in (("new", new), ("old", old)):
        found = parsed(text, grammar)  # type: ignore[arg-type]
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
    assert isinstance(parsed(f"```\n{code}\n```", "new"), ActionCall | ActionError)


def test_the_grammar_follows_the_day() -> None:
    assert (grammar_at(CHANGED_S - 1), grammar_at(CHANGED_S)) == ("old", "new")


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
    assert submitted(call) == value
