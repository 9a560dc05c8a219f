"""AIOpsLab's grammar of actions, before and after the change of 2025-09-23.

An action is a call in a block between triple backticks. The old grammar takes the first block; the new one wants
exactly one, without a language. Commands of `exec_shell` are cut out of the text with their quotes stripped, which
mangles a command that ends in a quote; other arguments are Python literals without signs.

Source: AIOpsLab, `aiopslab/orchestrator/parser.py`; behaviour told again, not its code.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

Grammar = Literal["old", "new"]
CHANGED_S = datetime(2025, 9, 23, tzinfo=UTC).timestamp()
"""When the new grammar came."""
NO_CALL = "No API call found!"
ONE_BLOCK = "Format validation failure: exactly one code block is wanted"
QUOTED = "commands must be quoted strings"
NODE = "unsupported value in a call"
_LONGEST = 1_000_000
_OLD_BLOCK = re.compile(r"```\w*[ \t]*\n(.*?)```", re.DOTALL)
_NEW_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class ActionCall:
    """A call as the environment understood it."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ActionError:
    """A message that the environment could not read as a call."""

    reason: str
    name: str = ""
    """The function, where that much can be told."""


def grammar_at(time_s: float) -> Grammar:
    """Return the grammar of a session by the time at which it started."""
    return "new" if time_s >= CHANGED_S else "old"


def parsed(text: str, grammar: Grammar) -> ActionCall | ActionError:
    """Return the action of a message.

    Examples
    --------
    >>> parsed('I look.\\n```\\nget_logs("ns", "geo")\\n```', "new")
    ActionCall(name='get_logs', args=('ns', 'geo'), kwargs={})
    """
    code = _code(text, grammar)
    if isinstance(code, ActionError):
        return code
    named = _NAME.match(code)
    if named is None:
        return ActionError(NO_CALL)
    if named[1] == "exec_shell":
        return _shell_call(code)
    try:
        return _call(code)
    except _Unsupported as problem:
        return ActionError(str(problem), named[1])


def submitted(call: ActionCall) -> tuple[Any, ...]:
    """Return what a call of `submit` hands in, as the agent meant it: the first argument, else the one with a name."""
    if call.args:
        return call.args[:1]
    return tuple(call.kwargs.values()) if len(call.kwargs) == 1 else ()


def _code(text: str, grammar: Grammar) -> str | ActionError:
    if grammar == "old":
        block = _OLD_BLOCK.search(text)
        return block[1].strip() if block else ActionError(NO_CALL)
    blocks = _NEW_BLOCK.findall(text)
    if len(blocks) != 1 or not blocks[0].startswith("\n"):
        return ActionError(ONE_BLOCK)
    return blocks[0].strip()


def _shell_call(code: str) -> ActionCall | ActionError:
    inside = code[code.index("(") + 1 : code.rindex(")")].strip() if ")" in code else ""
    inside = re.sub(r"^command\s*=\s*", "", inside)
    quote = inside[:1]
    if len(inside) < 2 or quote not in ("'", '"') or not inside.endswith(quote):
        return ActionError(QUOTED, "exec_shell")
    return ActionCall("exec_shell", (inside.strip(quote).replace(f"\\{quote}", quote),))


class _Unsupported(ValueError):
    pass


def _call(code: str) -> ActionCall:
    if len(code) > _LONGEST:
        raise _Unsupported(f"a call of {len(code):,} characters")
    try:
        with warnings.catch_warnings():
            # a wrong escape sequence in a text of the agent
            warnings.simplefilter("ignore")
            node = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Unsupported("no Python call") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _Unsupported("no Python call")
    kwargs = {}
    for word in node.keywords:
        if word.arg is None:
            raise _Unsupported(NODE)
        kwargs[word.arg] = _value(word.value)
    return ActionCall(node.func.id, tuple(_value(arg) for arg in node.args), kwargs)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value(key) for key in node.keys if key is not None]
        if all(isinstance(key, str | int | float | bool) for key in keys):
            return dict(zip(keys, map(_value, node.values), strict=True))
    raise _Unsupported(NODE)
