"""Generate the reference of the command line from click.

MkDocs calls `on_files` as a hook (see mkdocs.yml); the page exists only in the built site and is always up to date.
`python scripts/site_pages.py` prints it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from faultset.core.command_line.console import root

COMMAND_PAGE = "reference/cli.md"


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
        "[Exit codes and output](exit-codes.md) are the same for all commands.",
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
    """Yield the paragraphs of a help text; those marked with a backspace keep their lines, as in the terminal."""
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


def on_config(config: Any) -> Any:
    """Add all pages of `extend/` to the navigation."""
    folder = Path(config["docs_dir"])
    pages = [
        path.relative_to(folder).as_posix() for path in (*folder.glob("extend/*.md"), *folder.glob("write-a-*.md"))
    ]
    (extend,) = (entry["Extend"] for entry in config["nav"] if "Extend" in entry)
    listed = {page for entry in extend for page in (entry.values() if isinstance(entry, dict) else [entry])}
    extend += sorted(set(pages) - listed)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, COMMAND_PAGE, content=command_page()))
    return files


if __name__ == "__main__":
    click.echo(command_page(), nl=False)
