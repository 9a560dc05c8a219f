"""Filters after a pipe: grep, head, tail, wc, sort, uniq and awk's print, on lines in memory.

RE2 matches regular expressions in linear time, so no pattern can hang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from faultset.datasets.kubectl.commands import CommandError, ShellSyntaxError

_AWK = re.compile(r"\{\s*print\s*((?:\$(?:\d+|NF)\s*,?\s*)*)\}\s*")
_FIELD = re.compile(r"\$(\d+|NF)")
_GREP_SWITCHES = frozenset("iEvcwnFx")
_MAX_STAGES = 20


def apply_filters(text: str, stages: Sequence[Sequence[str]]) -> str:
    """Apply a chain of filters to a text.

    >>> apply_filters("geo 1\\nrate 2\\nuser 1", [["grep", "1$"], ["awk", "{print $1}"]])
    'geo\\nuser'
    """
    if len(stages) > _MAX_STAGES:
        raise CommandError(f"a pipe must have at most {_MAX_STAGES} filters, but has {len(stages)}")
    lines = text.split("\n") if text else []
    for name, *arguments in stages:
        if name not in FILTERS:
            raise ShellSyntaxError(
                f'"{name[:60]}" is not a built-in filter, and there is no shell; use {", ".join(FILTERS)}'
            )
        lines = FILTERS[name](lines, arguments)
    return "\n".join(lines)


def _grep(lines: list[str], arguments: Sequence[str], *, extended: bool = False, fixed: bool = False) -> list[str]:
    switches = {"E"} if extended else {"F"} if fixed else set()
    context = {"A": 0, "B": 0}
    patterns: list[str] = []
    limit = len(lines)
    remaining = [word for word in arguments if not word.startswith(("--color", "--colour"))]
    while remaining:
        word = remaining.pop(0)
        if word in ("-e", "--regexp") and remaining:
            patterns.append(remaining.pop(0))
        elif word[:2] in ("-A", "-B", "-C", "-m"):
            value = _parse_whole_number(word[2:] or (remaining.pop(0) if remaining else ""), "grep")
            if word[1] == "m":
                limit = value
            for side in ("A", "B") if word[1] == "C" else (word[1],):
                context[side] = value
        elif word in ("--ignore-case", "--invert-match", "--count"):
            switches.add(word[2] if word != "--invert-match" else "v")
        elif word.startswith("-") and len(word) > 1 and set(word[1:]) <= _GREP_SWITCHES:
            switches |= set(word[1:])
        elif word.startswith("-") and len(word) > 1:
            raise CommandError(
                f"grep's option {word[:40]} is not supported; use -i, -E, -v, -c, -w, -n, -F, -x, -A, -B, -C, -m or -e"
            )
        elif not patterns:
            patterns.append(word)
        else:
            raise CommandError("grep reads the pipe and takes no files; leave them out")
    if not patterns:
        raise CommandError("grep needs a pattern")
    matches = _match_lines(lines, patterns, switches)
    hits = [i for i, is_match in enumerate(matches) if is_match != ("v" in switches)][:limit]
    if "c" in switches:
        return [str(len(hits))]
    shown = sorted({k for i in hits for k in range(max(0, i - context["B"]), min(len(lines), i + context["A"] + 1))})
    return [f"{i + 1}:{lines[i]}" if "n" in switches else lines[i] for i in shown]


def _match_lines(lines: list[str], patterns: list[str], switches: set[str]) -> list[bool]:
    if "F" in switches:
        expressions = [re.escape(pattern) for pattern in patterns]
    else:
        expressions = [pattern if "E" in switches else _to_extended(pattern) for pattern in patterns]
    expression = "|".join(f"(?:{alternative})" for alternative in expressions)
    if "w" in switches:
        expression = rf"\b(?:{expression})\b"
    if "x" in switches:
        expression = f"^(?:{expression})$"
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.array(lines, pa.string())
    try:
        matches = pc.match_substring_regex(texts, expression, ignore_case="i" in switches)  # type: ignore[attr-defined]
    except (pa.ArrowException, UnicodeError):
        raise CommandError(f"grep's pattern {patterns[0][:60]!r} must be a regular expression") from None
    return matches.to_pylist()


def _to_extended(basic: str) -> str:
    """Convert a basic regular expression to an extended one, which has operators without backslashes.

    >>> _to_extended(r"a\\|b+")
    'a|b\\\\+'
    """
    out, position = [], 0
    while position < len(basic):
        sign = basic[position]
        if sign == "\\" and position + 1 < len(basic):
            after = basic[position + 1]
            out.append(after if after in "|+?(){}" else sign + after)
            position += 2
            continue
        out.append("\\" + sign if sign in "|+?(){}" else sign)
        position += 1
    return "".join(out)


def _parse_whole_number(text: str, name: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text, re.ASCII):
        raise CommandError(f"{name} needs a whole number, got {text[:40]!r}")
    return abs(int(text))


def _read_count(arguments: Sequence[str], name: str) -> tuple[int, str]:
    """Return the number of lines for head and tail, and the sign before it."""
    words = [word for word in arguments if word not in ("-q", "--quiet")]
    text = ""
    if len(words) == 2 and words[0] in ("-n", "--lines"):
        text = words[1]
    elif len(words) == 1 and words[0].startswith(("-n", "--lines=")):
        text = words[0].removeprefix("--lines=").removeprefix("-n")
    elif len(words) == 1 and re.fullmatch(r"[-+][0-9]{1,9}", words[0], re.ASCII):
        text = words[0][1:] if words[0][0] == "-" else words[0]
    elif words:
        raise CommandError(f"{name} supports only a number of lines, as in {name} -n 20")
    return (_parse_whole_number(text, name), text.rstrip("0123456789")) if text else (10, "")


def _head(lines: list[str], arguments: Sequence[str]) -> list[str]:
    count, sign = _read_count(arguments, "head")
    return lines[: max(0, len(lines) - count)] if sign == "-" else lines[:count]


def _tail(lines: list[str], arguments: Sequence[str]) -> list[str]:
    count, sign = _read_count(arguments, "tail")
    if sign == "+":
        return lines[max(0, count - 1) :]
    return lines[-count:] if count else []


def _wc(lines: list[str], arguments: Sequence[str]) -> list[str]:
    counts = {
        "-l": len(lines),
        "-w": sum(len(line.split()) for line in lines),
        "-c": sum(len(line.encode("utf-8", "replace")) + 1 for line in lines),
    }
    options = list(arguments) or list(counts)
    if not set(options) <= set(counts):
        raise CommandError("wc supports only -l, -w and -c")
    return [" ".join(str(counts[option]) for option in options)]


def _sort(lines: list[str], arguments: Sequence[str]) -> list[str]:
    switches: set[str] = set()
    column = 0
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if word.startswith("-k"):
            text = (word[2:] or (remaining.pop(0) if remaining else "")).partition(",")[0]
            match = re.fullmatch(r"([0-9]{1,4})([nr]*)", text, re.ASCII)
            if not match:
                raise CommandError("sort -k needs the number of a column")
            column, switches = int(match[1]), switches | set(match[2])
        elif word.startswith("-") and len(word) > 1 and set(word[1:]) <= set("rnuhfb"):
            switches |= set(word[1:])
        else:
            raise CommandError("sort supports only -r, -n, -u and -k N")
    if "u" in switches:
        lines = list(dict.fromkeys(lines))

    def key(line: str) -> tuple[float, str]:
        text = line
        if column:
            words = line.split()
            text = words[column - 1] if column <= len(words) else ""
        leading = re.match(r"\s*-?[0-9]{1,15}(?:\.[0-9]{1,15})?", text, re.ASCII) if switches & {"n", "h"} else None
        return (float(leading[0]) if leading else 0.0), ("" if switches & {"n", "h"} else text)

    return sorted(lines, key=key, reverse="r" in switches)


def _uniq(lines: list[str], arguments: Sequence[str]) -> list[str]:
    if set(arguments) - {"-c"}:
        raise CommandError("uniq supports only -c")
    runs: list[tuple[int, str]] = []
    for line in lines:
        if runs and runs[-1][1] == line:
            runs[-1] = (runs[-1][0] + 1, line)
        else:
            runs.append((1, line))
    return [f"{count:7d} {line}" if arguments else line for count, line in runs]


def _awk(lines: list[str], arguments: Sequence[str]) -> list[str]:
    separator = None
    words = list(arguments)
    if words and words[0].startswith("-F"):
        separator = words.pop(0)[2:] or (words.pop(0) if words else "")
        if not separator:
            raise CommandError("awk -F needs a separator")
    program = _AWK.fullmatch(words[0].strip()) if len(words) == 1 else None
    if program is None:
        raise CommandError("awk supports only columns, as in awk '{print $1, $3}'")
    columns = _FIELD.findall(program[1]) or ["0"]
    return [" ".join(_column(line, line.split(separator), column) for column in columns) for line in lines]


def _column(line: str, words: list[str], name: str) -> str:
    if name == "NF":
        return words[-1] if words else ""
    number = int(name[:6])
    if number == 0:
        return line
    return words[number - 1] if number <= len(words) else ""


FILTERS: dict[str, Callable[[list[str], Sequence[str]], list[str]]] = {
    "grep": _grep,
    "egrep": lambda lines, arguments: _grep(lines, arguments, extended=True),
    "fgrep": lambda lines, arguments: _grep(lines, arguments, fixed=True),
    "head": _head,
    "tail": _tail,
    "wc": _wc,
    "sort": _sort,
    "uniq": _uniq,
    "awk": _awk,
    "cat": lambda lines, arguments: lines,
}
