"""What the pages name exists: files, modules, commands and their options, and the targets of links."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import click

from faultset.baselines.registry import list_baselines
from faultset.core.console import root

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
TOP_FOLDERS = "baselines|benchmarks|collector|datasets|docs|evaluators|examples|image|notebooks|scripts|tests"
GENERATED = {f"{folder}{name}.md" for folder in ("", "reference/") for name in ("cli", "faults", "methods", "steps")}
GROUPS = [
    *"agent_formats apps baselines commands exporters faults importers load_drivers mitigators".split(),
    *"platforms scorers sources".split(),
]
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^from (faultset(?:\.\w+)*) import \(?([^()#\n]+|[^()]+\))", re.MULTILINE)
TEXTS = {path: path.read_text("utf-8") for path in PAGES}


def complaints(wrong: Callable[[Path, str], Iterable[object]]) -> dict[str, list[object]]:
    """Return what is wrong with every page that has something wrong."""
    found = {path.relative_to(ROOT).as_posix(): list(wrong(path, text)) for path, text in TEXTS.items()}
    return {name: sentences for name, sentences in found.items() if sentences}


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))


def test_links_lead_to_files() -> None:
    def wrong(path: Path, text: str) -> list[str]:
        links = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", BLOCK.sub("", text))
        missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
        return [link for link in missing if link.removeprefix("../") not in GENERATED]

    assert not complaints(wrong)


def test_no_page_has_both_sides_of_a_merge() -> None:
    assert [page.name for page in PAGES if re.search(r"^[<>]{7} ", page.read_text("utf-8"), re.MULTILINE)] == []


def test_files_that_are_named_exist() -> None:
    def wrong(path: Path, text: str) -> list[str]:
        named = [span for span in code_spans(text) if re.fullmatch(rf"({TOP_FOLDERS})/[\w./-]*", span)]
        roots = [ROOT, *((ROOT / "examples").iterdir() if path.parent.name == "developing" else ())]
        return [span for span in named if not any((root / span).exists() for root in roots)]

    assert not complaints(wrong)


def test_python_files_that_are_named_exist() -> None:
    folders = [ROOT / name for name in TOP_FOLDERS.split("|")]
    sources = "\n".join(f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in folder.rglob("*.py"))

    def wrong(path: Path, text: str) -> list[str]:
        if path.parent.name == "developing":  # a guide names files that its reader writes
            return []
        named = [span for span in code_spans(text) if re.fullmatch(r"[\w/]+\.py", span)]
        return [name for name in named if not re.search(rf"/{re.escape(name)}$", sources, re.MULTILINE)]

    assert not complaints(wrong)


def test_journeys_name_files_that_exist_and_count_them() -> None:
    text = TEXTS[ROOT / "docs" / "concepts" / "architecture.md"].partition("## Five journeys")[2]
    paths = "\n".join(path.as_posix() for path in SOURCES) + "\nverdicts/calibration.json"
    journeys = re.findall(r"^### ([^\n]+)\n+(\d+) files[^\n]*\n+```text\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    assert len(journeys) == 5
    for title, count, body in journeys:
        names = re.findall(r"[\w/]+\.(?:py|json)\b", body)
        assert len(names) == int(count), title
        assert not [name for name in names if not re.search(rf"/{re.escape(name)}$", paths, re.MULTILINE)], title


def exists(name: str) -> bool:
    """Tell whether a dotted name is a module, or can be had from one."""
    module, _, attribute = name, "", ""
    rest: list[str] = []
    while module:
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, attribute = module.rpartition(".")
            rest.insert(0, attribute)
            continue
        for part in rest:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_names_of_modules_and_what_is_in_them_exist() -> None:
    groups = {f"faultset.{group}" for group in GROUPS}

    def wrong(path: Path, text: str) -> list[str]:
        spans = [match[0] for span in code_spans(text) if (match := re.match(r"faultset(\.\w+)+", span))]
        return [name for name in spans if name not in groups and not exists(name)]

    assert not complaints(wrong)


def test_imports_in_examples_work() -> None:
    def wrong(path: Path, text: str) -> Iterator[str]:
        for _, language, code in BLOCK.findall(text):
            if language == "python":
                for module, names in IMPORT.findall(code):
                    for name in names.strip("() \n").split(","):
                        if name.strip() and not exists(f"{module}.{name.split()[0]}"):
                            yield f"{module} has no {name}"

    assert not complaints(wrong)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the commands of ours in code blocks, as the shell splits them."""
    for _, language, code in BLOCK.findall(text):
        if language in ("", "bash", "console", "sh"):
            for line in code.replace("\\\n", " ").splitlines():
                yield from words_of(line.strip().removeprefix("$ "))


def words_of(line: str) -> Iterator[list[str]]:
    if re.match(r"(faultset|collect|evaluate) ", line):
        line = line if "#" in line or "  " not in line else line.split("   ")[0]
        yield shlex.split(re.split(r" [|>] | && | &$|;", line)[0], comments=True)


def check_command(words: list[str]) -> None:
    """Parse a command's arguments as if it were run, without running it."""
    if words[0] == "faultset":
        words = words[1:]
    command: click.Command = root
    while isinstance(command, click.Group):
        context = click.Context(command)
        name = words.pop(0)
        if name in ("--version", "--help"):
            return
        found = command.get_command(context, name)
        assert found is not None, f"no command {name}"
        command = found
    if "--help" not in words:
        placeholders = ["1" if re.fullmatch(r"\[.*\]", word) else word for word in words]
        try:
            command.make_context(command.name, placeholders)
        except click.UsageError as error:
            # the files and folders are the reader's
            if not re.search("does not exist|No such file", error.format_message()):
                raise


def test_commands_can_be_given_as_the_page_says() -> None:
    def wrong(path: Path, text: str) -> Iterator[str]:
        for words in command_lines(text):
            try:
                check_command(list(words))
            except click.UsageError as error:
                yield f"{shlex.join(words)}: {error.format_message()}"

    assert not complaints(wrong)


LONG_NAME = re.compile(r"faultset (?:collect|evaluate)\b(?! and )")
SOURCES = [
    path for part in ("collector", "datasets", "baselines", "evaluators") for path in (ROOT / part).rglob("*.py")
]


def test_collect_and_evaluate_go_by_their_short_names_in_pages_and_messages() -> None:
    texts = {**TEXTS, **{path: path.read_text("utf-8") for path in SOURCES}}
    assert not {path: LONG_NAME.findall(text) for path, text in texts.items() if LONG_NAME.search(text)}


def test_every_command_has_examples_that_can_be_given(site_pages: ModuleType) -> None:
    for context, command in site_pages.commands():
        if isinstance(command, click.Group):
            continue
        _, mark, examples = (command.help or "").partition("Example")
        assert mark, f"the help of {context.command_path} has no example"
        found = [words for line in examples.splitlines()[1:] for words in words_of(line.strip())]
        assert found, f"the help of {context.command_path} has no example"
        for words in found:
            check_command(words)


def test_every_command_and_option_is_in_the_reference(site_pages: ModuleType) -> None:
    page = site_pages.command_page()
    for point in entry_points(group="faultset.commands"):
        assert f"\n## faultset {point.name.replace('.', ' ')}\n" in page
    for context, command in site_pages.commands():
        section = page.split(f"\n## {context.command_path}\n")[1].split("\n## ")[0]
        hidden = [option for option in command.get_params(context) if getattr(option, "hidden", False)]
        options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
        assert all(option.opts[0] in section for option in options if option not in hidden)
        assert all(option.help for option in options if option not in hidden and option.name not in ("out", "profile"))


def test_every_built_in_method_is_in_the_reference_with_the_data_that_it_was_developed_on(
    site_pages: ModuleType,
) -> None:
    page = site_pages.methods_page()
    specs = [spec for spec in list_baselines().values() if spec.factory.__module__.startswith("faultset.")]
    assert specs
    assert not [spec.name for spec in specs if f"| `{spec.name}` | {spec.title} |" not in page]
    assert not [spec.name for spec in specs if spec.developed_on is None]


def test_the_application_of_the_page_can_be_run(tmp_path: Path) -> None:
    from faultset.collector.apps import load_app

    text = TEXTS[ROOT / "docs" / "how-to" / "own-application.md"]
    (spec,) = [body for _, language, body in BLOCK.findall(text) if language == "yaml"]
    (tmp_path / "shop.yaml").write_text(spec)
    assert [*load_app(str(tmp_path / "shop.yaml")).services] == ["web", "catalogue", "pricing", "items"]
    lines = re.search(r"\[(\d+) lines of YAML\]\(docs/how-to/own-application.md\)", TEXTS[ROOT / "README.md"])
    assert lines
    assert int(lines[1]) == len(spec.splitlines())
