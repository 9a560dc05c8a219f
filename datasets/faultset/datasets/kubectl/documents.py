"""Print objects in the formats of `kubectl get -o` that are not tables, including JSONPath templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.kinds import full_name
from faultset.datasets.kubectl.printing import format_columns

_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)")
_STEP = re.compile(
    r"""\.\.?(?P<key>[A-Za-z_](?:[\w-]|\\.)*)|\.?\[\s*(?:'(?P<quoted>[^']*)'|"(?P<double>[^"]*)")\s*\]"""
    r"""|(?P<all>\.?\[\*\]|\.\*)|\[(?P<index>-?\d{1,6})\]"""
    r"""|\[\?\(\s*@(?P<path>[\w.\-\[\]]+)\s*(?P<sign>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]"""
)
_MAX_VALUES = 100_000
_MAX_TEMPLATE = 4000

Piece = tuple[str | None, str | None]
"""An expression in braces, or text between expressions."""


class MissingFieldError(Exception):
    """A path of a template matches no field."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def select(value: Any, path: str) -> list[Any]:
    """Return all values that match a path.

    >>> select({"items": [{"name": "a"}, {"name": "b"}]}, ".items[*].name")
    ['a', 'b']
    """
    if len(path) > _MAX_TEMPLATE:
        raise CommandError(f"a path must have at most {_MAX_TEMPLATE:,} characters, but has {len(path):,}")
    text = path.strip().removeprefix("$").removeprefix("@")
    if text and text[0] not in ".[":
        text = "." + text
    values = [value]
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            if text[position:] == ".":
                break
            raise CommandError(f"the path {path[:80]!r} cannot be parsed")
        values = [inner for outer in values for inner in _follow(outer, step)][:_MAX_VALUES]
        position = step.end()
    return values


def _follow(value: Any, step: re.Match[str]) -> Iterator[Any]:
    """Yield the values that a step of a path selects."""
    groups = step.groupdict()
    key = next((groups[name] for name in ("key", "quoted", "double") if groups[name] is not None), None)
    if key is not None:
        key = key.replace("\\.", ".")
        if step[0].startswith(".."):
            yield from _search(value, key)
        elif isinstance(value, dict) and key in value:
            yield value[key]
    elif groups["all"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif groups["index"] is not None:
        index = int(groups["index"])
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]
    elif isinstance(value, list):
        operand = groups["value"].strip("\"'")
        for item in value:
            texts = [text_of(field) for field in select(item, groups["path"])]
            if (operand in texts) == (groups["sign"] == "=="):
                yield item


def _search(value: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key at any depth."""
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for inner in value.values():
            yield from _search(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _search(inner, key)


def text_of(value: Any) -> str:
    """Return a value as kubectl prints it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def render_template(template: str, value: Any, *, strict: bool = False) -> str:
    """Return a template with the values of its paths; missing fields are empty.

    Raises
    ------
    MissingFieldError
        A path matches no field and `strict` is true.
    CommandError
        The template cannot be parsed.

    Examples
    --------
    >>> render_template('{range .items[*]}{.name}{"\\\\n"}{end}', {"items": [{"name": "a"}, {"name": "b"}]})
    'a\\nb\\n'
    """
    if len(template) > _MAX_TEMPLATE:
        raise CommandError(f"a template must have at most {_MAX_TEMPLATE:,} characters, but has {len(template):,}")
    if "{" not in template:
        template = "{" + template + "}"
    if _PIECE.sub("", template):
        raise CommandError(f"the template {template[:80]!r} has an unmatched brace; close or remove it")
    pieces = [(match[1], match[2]) for match in _PIECE.finditer(template)]
    text, rest = _render(pieces, value, strict)
    if rest:
        raise CommandError("the template has an {end} without a {range}; remove it")
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
                raise CommandError("the template has a {range} without an {end}; add it")
            pieces = rest[1:]
        elif expression[:1] in "\"'":
            out.append(expression.strip("\"'").replace("\\n", "\n").replace("\\t", "\t"))
        else:
            values = select(value, expression)
            if not values and strict:
                raise MissingFieldError(expression)
            out.append(" ".join(map(text_of, values)))
    return "".join(out), []


_FORMATS = ("wide", "yaml", "json", "name", "jsonpath=", "jsonpath-as-json=", "custom-columns=")
"""Values of `-o`; a template follows the equals sign."""


def check_format(output: str) -> str:
    """Return the value of `-o`, which may be empty; raise CommandError for an unknown format."""
    form, equals, _ = output.partition("=")
    if output and form + equals not in _FORMATS:
        raise CommandError(f'the output format must be one of {", ".join(_FORMATS)}, got "{output[:40]}"')
    return output


def yaml_text(value: Any) -> str:
    """Return a value as YAML with sorted keys and multi-line texts as blocks."""
    import yaml

    class Blocks(yaml.SafeDumper):
        pass

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Blocks.add_representer(str, represent)
    return yaml.dump(value, Dumper=Blocks, sort_keys=True).rstrip()


def document(objects: Sequence[Mapping[str, Any]], output: str, *, single: bool, unknown: str | None = None) -> str:
    """Return objects in a format of `kubectl get`.

    Parameters
    ----------
    output
        Value of `-o` with its template.
    single
        Whether the request names a single object, which is then printed without a List around it.
    unknown
        Placeholder for missing fields in `custom-columns`. With None, missing fields are `<none>` in custom columns and
        empty in templates, as in kubectl.

    Raises
    ------
    CommandError
        The format or its template is invalid.
    MissingFieldError
        A path of a template matches no field and `unknown` is given.
    """
    form, _, template = check_format(output).partition("=")
    if form == "name":
        return "\n".join(full_name(body["kind"], body["metadata"]["name"]) for body in objects)
    if form == "custom-columns":
        return _custom_columns(objects, template, "<none>" if unknown is None else unknown)
    value: Any = objects[0] if single and objects else _list_of(objects)
    if form == "json":
        return json.dumps(value, indent=4, sort_keys=True)
    if form == "yaml":
        return yaml_text(value)
    if form == "jsonpath":
        return render_template(template, value, strict=unknown is not None)
    return json.dumps(select(value, template.strip("{}")), indent=4)


def _list_of(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


def _custom_columns(objects: Sequence[Mapping[str, Any]], template: str, unknown: str) -> str:
    columns = [column.partition(":") for column in template.split(",")]
    if not all(name and path for name, _, path in columns):
        raise CommandError("custom-columns needs NAME:PATH, such as NAME:.metadata.name, or several joined by commas")
    rows = [
        [",".join(map(text_of, select(body, path.strip("{}")))) or unknown for _, _, path in columns]
        for body in objects
    ]
    return format_columns([name for name, _, _ in columns], rows)
