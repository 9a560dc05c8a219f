"""Count phrases that make readers stop, and placeholder names, in sources and Markdown.

    python scripts/prose.py                                  counts by rule
    python scripts/prose.py PATH...                          every hit below these paths
    python scripts/prose.py --max-phrases 9 --max-names 4    exit with 1 above these counts per 1,000 lines

The rules are in prose.toml. They find symptoms: rephrase the sentence instead of replacing the word.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {".venv", ".git", "node_modules", "__pycache__", "tests", "site"}
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RULES = {hint: re.compile(pattern) for hint, pattern in _TABLE["rules"].items()}
"""Hint for the writer -> pattern."""
PLACEHOLDERS = frozenset(_TABLE["placeholders"])
_SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")
_DIRECTIVE = ("# type:", "# fmt", "# noqa", "# pyright")


def read_texts(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line of prose in a file."""
    if path.suffix == ".md":
        is_code = False
        for number, line in enumerate(source.splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            elif not is_code and not line.lstrip().startswith("|--"):
                yield number, re.sub(r"`[^`]*`", "`x`", line)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SENTENCE.search(node.value):
            yield from enumerate(node.value.splitlines(), node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(_DIRECTIVE):
            yield token.start[0], token.string


def placeholder_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and name of every assignment to a placeholder name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PLACEHOLDERS:
            yield node.lineno, node.id


def files_below(paths: list[Path]) -> Iterator[Path]:
    """Yield the Python and Markdown files below paths, without tests."""
    for path in paths:
        candidates = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in candidates:
            if file.suffix in (".py", ".md") and file.is_file() and not SKIPPED & {*file.parts}:
                yield file


def main() -> int:
    """Print hits or counts, and return whether a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--max-phrases", type=float, default=float("inf"), help="phrases per 1,000 lines")
    parser.add_argument("--max-names", type=float, default=float("inf"), help="placeholder names per 1,000 lines")
    options = parser.parse_args()
    hits: Counter[str] = Counter()
    names = lines = 0
    for file in files_below(options.paths or [ROOT]):
        source = file.read_text(encoding="utf-8")
        lines += source.count("\n")
        problems = [
            (number, hint) for number, text in read_texts(file, source) for hint in RULES if RULES[hint].search(text)
        ]
        hits.update(hint for _, hint in problems)
        assigned = list(placeholder_lines(source)) if file.suffix == ".py" else []
        names += len(assigned)
        if options.paths:
            for number, hint in sorted(problems + [(number, f"name `{name}`") for number, name in assigned]):
                print(f"{file}:{number}: {hint}")
    for hint, count in hits.most_common():
        print(f"{count:6}  {hint}")
    phrases_rate, names_rate = (1000 * count / max(lines, 1) for count in (hits.total(), names))
    print(f"{hits.total()} phrases and {names} placeholder names in {lines} lines: ", end="")
    print(f"{phrases_rate:.2f} and {names_rate:.2f} per 1,000")
    return int(phrases_rate > options.max_phrases or names_rate > options.max_names)


if __name__ == "__main__":
    sys.exit(main())
