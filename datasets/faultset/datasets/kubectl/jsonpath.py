"""The part of kubectl's JSONPath templates that agents use: fields, indexes, wildcards, equality filters and ranges."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from faultset.datasets.kubectl.errors import CommandError

_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)")
_STEP = re.compile(
    r"""\.\.?(?P<key>[A-Za-z_](?:[\w-]|\\.)*)|\.?\[\s*(?:'(?P<quoted>[^']*)'|"(?P<double>[^"]*)")\s*\]"""
    r"""|(?P<all>\.?\[\*\]|\.\*)|\[(?P<index>-?\d{1,6})\]"""
    r"""|\[\?\(\s*@(?P<path>[\w.\-\[\]]+)\s*(?P<sign>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]"""
)
_MOST = 100_000
_LONGEST_TEMPLATE = 4000

Piece = tuple[str | None, str | None]
"""An expression in braces, or a text between them."""


class MissingFieldError(Exception):
    """A path leads to nothing; its text is the path."""


def select(value: Any, path: str) -> list[Any]:
    """Return everything that a path leads to.

    >>> select({"items": [{"name": "a"}, {"name": "b"}]}, ".items[*].name")
    ['a', 'b']
    """
    if len(path) > _LONGEST_TEMPLATE:
        raise CommandError(f"a path has at most {_LONGEST_TEMPLATE:,} characters; found {len(path):,}")
    text = path.strip().removeprefix("$").removeprefix("@")
    if text and text[0] not in ".[":
        text = "." + text
    found = [value]
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            if text[place:] == ".":
                break
            raise CommandError(f"the path {path[:80]!r} cannot be read")
        found = [one for each in found for one in _stepped(each, step)][:_MOST]
        place = step.end()
    return found


def _stepped(value: Any, step: re.Match[str]) -> Iterator[Any]:
    parts = step.groupdict()
    key = next((parts[name] for name in ("key", "quoted", "double") if parts[name] is not None), None)
    if key is not None:
        key = key.replace("\\.", ".")
        if step[0].startswith(".."):
            yield from _anywhere(value, key)
        elif isinstance(value, dict) and key in value:
            yield value[key]
    elif parts["all"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif parts["index"] is not None:
        place = int(parts["index"])
        if isinstance(value, list) and -len(value) <= place < len(value):
            yield value[place]
    elif isinstance(value, list):
        wanted = parts["value"].strip("\"'")
        for one in value:
            held = [text_of(found) for found in select(one, parts["path"])]
            if (wanted in held) == (parts["sign"] == "=="):
                yield one


def _anywhere(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for one in value.values():
            yield from _anywhere(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _anywhere(one, key)


def text_of(value: Any) -> str:
    """Return a value as kubectl prints it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def rendered(template: str, value: Any, *, strict: bool = False) -> str:
    """Return a template with its paths filled in; one that leads to nothing leaves nothing.

    Raises
    ------
    MissingFieldError
        A path leads to nothing, and the template is to be filled in completely (`strict`).
    CommandError
        The template cannot be read.

    Examples
    --------
    >>> rendered('{range .items[*]}{.name}{"\\\\n"}{end}', {"items": [{"name": "a"}, {"name": "b"}]})
    'a\\nb\\n'
    """
    if len(template) > _LONGEST_TEMPLATE:
        raise CommandError(f"a template has at most {_LONGEST_TEMPLATE:,} characters; found {len(template):,}")
    if "{" not in template:
        template = "{" + template + "}"
    if _PIECE.sub("", template):
        raise CommandError(f"the template {template[:80]!r} has a brace without its other one")
    pieces = [(one[1], one[2]) for one in _PIECE.finditer(template)]
    text, rest = _render(pieces, value, strict)
    if rest:
        raise CommandError("the template has an {end} without a {range}")
    return text


def _render(pieces: list[Piece], value: Any, strict: bool) -> tuple[str, list[Piece]]:
    out: list[str] = []
    while pieces:
        (expression, literal), *pieces = pieces
        if expression is None:
            out.append((literal or "").replace("\\n", "\n").replace("\\t", "\t"))
            continue
        expression = expression.strip()
        if expression == "end":
            return "".join(out), [("end", None), *pieces]
        if expression.startswith("range"):
            items = select(value, expression.removeprefix("range"))
            if not items and strict:
                raise MissingFieldError(expression)
            _, rest = _render(pieces, None, strict=False)
            for item in items:
                text, rest = _render(pieces, item, strict)
                out.append(text)
            if rest[:1] != [("end", None)]:
                raise CommandError("the template has a {range} without an {end}")
            pieces = rest[1:]
        elif expression[:1] in "\"'":
            out.append(expression.strip("\"'").replace("\\n", "\n").replace("\\t", "\t"))
        else:
            found = select(value, expression)
            if not found and strict:
                raise MissingFieldError(expression)
            out.append(" ".join(text_of(one) for one in found))
    return "".join(out), []
