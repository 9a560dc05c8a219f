"""Messages of errors for users say what is wrong and what was expected or what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.core import errors

ROOT = Path(__file__).parents[1]
CEILING = {
    "baselines/faultset": 0,
    "collector/faultset": 58,
    "datasets/faultset": 0,
    "datasets/faultset/datasets/imports": 2,
    "datasets/faultset/datasets/training": 0,
    "evaluators/faultset": 3,
}
"""Messages without the form below a folder. Only ever lower a number, in the change that mends the messages."""
CLASSES = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
"""Other subclasses of FaultsetError are caught inside a package and not shown as they are."""
VERBS = """
    add allow build call change check choose close collect commit compare convert copy correct create cut declare
    decorate delete deploy divide end evaluate export free give go import increase install keep leave let list log
    look limit lower make mount move name open pass plan print publish put quote raise read reduce reinstall remove
    rename repair repeat replace restart restore run save say score see set start stop train try uninstall unpack update
    upgrade use wait write
"""
REMEDY = re.compile(
    r"(?:^|[;.,:?] |, or |, and |\band |\bor |\bthen |\bfirst |\bonly )(?:" + "|".join(VERBS.split()) + r")\b", re.I
)
EXPECTATION = re.compile(
    r"\b(?:must|needs?|at least|at most|between)\b.*(?:\bgot\b|\bbut\b|\bnot\b|\{\})|, not \{\}$", re.S
)
COMPUTED = re.compile(r"\{\}[\"'?]?$|\?$")
"""A message that ends in a value, such as a list of suggestions or a remedy from a table, or in a question."""


def message_text(node: ast.expr) -> str:
    """Return a message with `{}` for each value in it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return message_text(node.left) + message_text(node.right)
    if isinstance(node, ast.IfExp):
        return min(message_text(node.body), message_text(node.orelse), key=has_form)
    return "{}"


def has_form(text: str) -> bool:
    parts = re.split(r"; |\. |, |: ", text)
    if text == "{}":
        return True  # another function made the message, which is checked there
    return (
        bool(REMEDY.search(text.partition(parts[0])[2]))
        or bool(EXPECTATION.search(text))
        or (len(re.split(r"; |\. ", text)) > 1 and bool(COMPUTED.search(text)))
    )


def messages(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in CLASSES:
                yield node.lineno, message_text(node.args[0])


def test_messages_say_what_is_wrong_and_what_was_expected_or_what_to_do() -> None:
    wrong: dict[str, list[str]] = {folder: [] for folder in CEILING}
    for top in ("baselines", "collector", "datasets", "evaluators"):
        for path in sorted((ROOT / top / "faultset").rglob("*.py")):
            folder = max((name for name in CEILING if path.is_relative_to(ROOT / name)), key=len)
            lines = [f"{path.relative_to(ROOT)}:{line}: {text}" for line, text in messages(path) if not has_form(text)]
            wrong[folder] += lines
    over = {folder: lines for folder, lines in wrong.items() if len(lines) > CEILING[folder]}
    assert not over, "\n".join(line for lines in over.values() for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--out must be an empty folder, but {} holds {} files; choose another", True),
        ("{} must be a number of bytes, got {}", True),
        ("unknown app {}; {}", True),
        ("{} is a file", False),
        ("{} cannot be read ({})", False),
        ("the episode is closed; nothing can be written", False),
        ("run {} is over", False),
    ],
)
def test_the_form_is_recognised(text: str, expected: bool) -> None:
    assert has_form(text) is expected
