"""Objects as `kubectl get -o` prints them in the formats that are no tables, with JSONPath templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.kinds import full_name
from faultset.datasets.kubectl.printing import in_columns

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
    """A path of a template leads to nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


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


_FORMATS = ("wide", "yaml", "json", "name", "jsonpath=", "jsonpath-as-json=", "custom-columns=")
"""What `-o` takes; what ends with an equals sign goes on with a template."""


def check_format(output: str) -> str:
    """Return what follows `-o`, empty for a table; raise CommandError for a format that is not known."""
    form, equals, _ = output.partition("=")
    if output and form + equals not in _FORMATS:
        raise CommandError(f'the output format "{output[:40]}" is not known here; known are {", ".join(_FORMATS)}')
    return output


def yaml_text(value: Any) -> str:
    """Return a value as YAML with sorted keys, texts of several lines as blocks."""
    import yaml

    class Blocks(yaml.SafeDumper):
        pass

    def shown(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Blocks.add_representer(str, shown)
    return yaml.dump(value, Dumper=Blocks, sort_keys=True).rstrip()


def document(objects: Sequence[Mapping[str, Any]], output: str, *, single: bool, unknown: str | None = None) -> str:
    """Return objects in a format.

    Parameters
    ----------
    output
        What follows `-o`, with its template.
    single
        Whether one object was asked for by its name; it is then shown by itself, others as a List.
    unknown
        What stands for a field that an object has not; None leaves it empty, as kubectl does, in `custom-columns`
        `<none>`.

    Raises
    ------
    CommandError
        The format or its template cannot be understood.
    MissingFieldError
        With `unknown`, a path of a template leads to nothing.
    """
    form, _, template = check_format(output).partition("=")
    if form == "name":
        return "\n".join(full_name(one["kind"], one["metadata"]["name"]) for one in objects)
    if form == "custom-columns":
        return _custom_columns(objects, template, "<none>" if unknown is None else unknown)
    value: Any = objects[0] if single and objects else _list_of(objects)
    if form == "json":
        return json.dumps(value, indent=4, sort_keys=True)
    if form == "yaml":
        return yaml_text(value)
    if form == "jsonpath":
        return rendered(template, value, strict=unknown is not None)
    return json.dumps(select(value, template.strip("{}")), indent=4)


def _list_of(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


def _custom_columns(objects: Sequence[Mapping[str, Any]], template: str, unknown: str) -> str:
    columns = [column.partition(":") for column in template.split(",")]
    if not all(name and path for name, _, path in columns):
        raise CommandError("custom-columns takes NAME:PATH, or several joined by commas, as NAME:.metadata.name")
    rows = [
        [",".join(text_of(value) for value in select(one, path.strip("{}"))) or unknown for _, _, path in columns]
        for one in objects
    ]
    return in_columns([name for name, _, _ in columns], rows)
