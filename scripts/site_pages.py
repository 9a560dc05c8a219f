"""Pages of the documentation site that are written from the code: commands, steps of applications, methods and faults.

MkDocs calls `on_files` as a hook (see mkdocs.yml), so these pages exist only in the built site and are never out of
date. `python scripts/site_pages.py cli`, `steps`, `methods` or `faults` prints one.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import click

from faultset.baselines.registry import BaselineSpec, list_baselines
from faultset.collector.faults.registry import faults
from faultset.collector.runtime.steps import GENERIC_STEPS, Step
from faultset.collector.spec.steps import StepModel
from faultset.core.console import root

COMMAND_PAGE = "reference/cli.md"
STEPS_PAGE = "reference/steps.md"
METHODS_PAGE = "reference/methods.md"
FAULTS_PAGE = "reference/faults.md"
KINDS = ("named", "method", "own", "rule", "control")
TASKS = {"detection": "Detectors", "localization": "Localizers", "rca": "Diagnosers"}


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Yield every command with its context, groups before their commands."""
    yield from _below(click.Context(root, info_name="faultset"), root)


def _below(context: click.Context, command: click.Command) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            yield from _below(click.Context(child, info_name=name, parent=context), child)


def command_page() -> str:
    """Return the reference of the command line as Markdown."""
    parts = [
        "# Command line",
        "`collect` and `evaluate` are short for `faultset collect` and `faultset evaluate`. "
        "[Exit codes and output](exit-codes.md) holds for all commands.",
    ]
    for context, command in commands():
        parts.append(f"## {context.command_path}")
        parts += _paragraphs(command)
        if not isinstance(command, click.Group):
            parts.append(f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```")
        rows = [_option_row(option, context) for option in command.get_params(context)]
        rows = [row for row in rows if row]
        if rows:
            parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _paragraphs(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of the help; one that starts with a backspace keeps its line breaks, as in the terminal."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        mark, _, lines = paragraph.partition("\n")
        if mark.strip() == "\b":
            title, _, body = lines.partition("\n")
            yield title
            yield f"```bash\n{inspect.cleandoc(body)}\n```"
        else:
            yield paragraph


def _option_row(option: click.Parameter, context: click.Context) -> str | None:
    record = option.get_help_record(context)
    if record is None:
        return None
    names, meaning = (" ".join(text.split()).replace("|", "\\|") for text in record)
    return f"| `{names}` | {meaning.replace('[', '&#91;')} |"


def steps_page() -> str:
    """Return the reference of the steps of an application's spec as Markdown."""
    parts = [
        "# Steps",
        "For authors of [applications](../developing/app.md): every step that an operation may have, with its fields.",
    ]
    for step in GENERIC_STEPS:
        first = inspect.cleandoc(step.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        lines = [f"## {step.keyword}", "", first, "", "| field | value | default | meaning |", "|---|---|---|---|"]
        meanings = _attribute_docstrings(step)
        for name, field in step.model_fields.items():
            value = field.get_default(call_default_factory=True)
            default = "required" if field.is_required() else f"`{json.dumps(value)}`"
            lines.append(f"| `{field.alias or name}` | {value_name(field.annotation)} | {default} | {meanings[name]} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def value_name(annotation: Any) -> str:
    """Describe the values that a field of a step accepts."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return value_name(inside[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(value_name(kind) for kind in inside if kind is not types.NoneType)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inside)
    if origin is tuple:
        return f"list of {value_name(inside[0])}"
    if origin is dict:
        return f"mapping of names to {value_name(inside[1])}s"
    words = {str: "text", bool: "`true` or `false`", int: "whole number", float: "number", Any: "value"}
    words[StepModel] = "step"
    return words[annotation]


def _attribute_docstrings(model: type[Step]) -> dict[str, str]:
    """Return the docstring below each field of a class; a field without one is an error."""
    docstrings = {}
    for kind in (parent for parent in model.__mro__ if issubclass(parent, Step) and parent is not Step):
        (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                assert isinstance(after, ast.Expr), f"{kind.__name__}.{statement.target.id} has no docstring"
                docstrings[statement.target.id] = inspect.cleandoc(ast.literal_eval(after.value)).replace("\n", " ")
    return docstrings


def methods_page() -> str:
    """Return the reference of the built-in methods as Markdown: a table for each task."""
    parts = [
        "# Methods",
        "For readers who choose a method: every built-in one. [Baselines](baselines.md) explains the columns and the "
        "rules that all follow. S series, T samples since the reference, n samples in it, V services, N spans, L log "
        "lines, E events.",
    ]
    for task, title in TASKS.items():
        specs = [
            s for s in list_baselines().values() if s.task == task and s.factory.__module__.startswith("faultset.")
        ]
        specs.sort(key=lambda spec: (KINDS.index(spec.kind), spec.name))
        head = [
            "| name | title | idea | kind | reads | developed on | speed | cost | source |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        parts += [f"## {title}", "\n".join([*head, *(f"| {' | '.join(_method_cells(spec))} |" for spec in specs)])]
    return "\n\n".join(parts) + "\n"


def _method_cells(spec: BaselineSpec) -> tuple[str, ...]:
    reads = ", ".join((*spec.tables, *sorted(spec.needs))) or "nothing"
    seen = "; ".join(spec.developed_on or ())
    idea = inspect.cleandoc(spec.factory.__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"`{spec.name}`", spec.title, idea, spec.kind, reads, seen, spec.speed, spec.complexity, spec.paper


def build_faults_page() -> str:
    """Return the reference of the built-in faults as Markdown."""
    lines = [
        "# Fault effects",
        "",
        "For readers who choose a fault: every built-in one. [Faults](../concepts/faults.md) explains the terms.",
        "",
        "| fault | effect | level | type | category | drawn strength | schedules |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, spec in sorted(faults().items()):
        if spec.inject.__module__.startswith("faultset.collector."):
            schedules = ", ".join(("constant", *spec.schedules))
            cells = (spec.summary, spec.system_level, spec.fault_type, spec.category, spec.intensity, schedules)
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for path, write in PAGES.items():
        files.append(File.generated(config, path, content=write()))
    return files


PAGES = {COMMAND_PAGE: command_page, STEPS_PAGE: steps_page, METHODS_PAGE: methods_page, FAULTS_PAGE: build_faults_page}


if __name__ == "__main__":
    click.echo(PAGES[f"reference/{sys.argv[1]}.md"](), nl=False)
