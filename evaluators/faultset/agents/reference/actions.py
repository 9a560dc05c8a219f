"""Calls of tools in plain text, for models and servers that know no tools."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

_BLOCK = re.compile(r"```[A-Za-z]*[ \t]*\n?(.*?)```", re.DOTALL)
_LONGEST = 50_000


@dataclass(frozen=True, kw_only=True)
class TextAction:
    """A call that was read from text."""

    name: str
    arguments: dict[str, Any]


def action_in(text: str, names: Collection[str]) -> TextAction | None:
    """Return the first call of a known tool in a text: JSON or Python in a code block, else in the text itself.

    Examples
    --------
    >>> action_in('I look.\\n```\\n{"tool": "get_logs", "arguments": {"service": "geo"}}\\n```', {"get_logs"})
    TextAction(name='get_logs', arguments={'service': 'geo'})
    >>> action_in('```\\nget_logs(service="geo")\\n```', {"get_logs"})
    TextAction(name='get_logs', arguments={'service': 'geo'})
    """
    text = text[-_LONGEST:]
    for piece in (*_BLOCK.findall(text), *_objects(text), *reversed(text.splitlines())):
        found = _as_json(piece.strip(), names) or _as_python(piece.strip(), names)
        if found is not None:
            return found
    return None


def grammar(tools: Sequence[dict[str, Any]]) -> str:
    """Say in words how tools are called in text, and which there are."""
    lines = []
    for tool in tools:
        function = tool["function"]
        fields = function["parameters"].get("properties", {})
        wanted = set(function["parameters"].get("required", ()))
        named = ", ".join(name if name in wanted else f"{name}?" for name in fields)
        lines.append(f"- {function['name']}({named}): {function['description']}")
    return (
        "Call one tool in each reply, in a code block of its own:\n"
        '```\n{"tool": "NAME", "arguments": {"ARGUMENT": "VALUE"}}\n```\n'
        "Arguments with a question mark can be left out. The tools:\n" + "\n".join(lines)
    )


def _objects(text: str) -> list[str]:
    """Return the outermost pieces in braces."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        if letter == "{":
            start = place if depth == 0 else start
            depth += 1
        elif letter == "}" and depth:
            depth -= 1
            if depth == 0:
                found.append(text[start : place + 1])
    return found


def _as_json(piece: str, names: Collection[str]) -> TextAction | None:
    try:
        found = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    name = found.get("tool") or found.get("name") or found.get("action")
    arguments = found.get("arguments") or found.get("parameters") or found.get("args") or {}
    if isinstance(name, str) and name in names and isinstance(arguments, dict):
        return TextAction(name=name, arguments=arguments)
    return None


def _as_python(piece: str, names: Collection[str]) -> TextAction | None:
    """Read a call with keyword arguments that are literals."""
    piece = re.sub(r"^Action:\s*", "", piece)
    if not any(piece.startswith(f"{name}(") for name in names):
        return None
    try:
        call = ast.parse(piece, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            return None
        arguments = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return TextAction(name=call.func.id, arguments=arguments)
