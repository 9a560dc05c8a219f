"""Change files at random, reproducibly by seed, to test readers."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

VARIABLE = "FAULTSET_MUTATIONS"
"""Environment variable: number of mutations to try, or a range of seeds such as `2000-3000`."""
_DEFAULT_COUNT = 12
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63, -(2**63), 2**80, 1e308, -1e-308, float("nan"), float("inf"), "", "\x00", "\ud800",
    "\x1b[2J", "../../x", "/etc/passwd", "x" * 70_000, [], {}, [[]], {"": {}}, [None], "NaN", "1e999", "٣",
)  # fmt: skip
_BYTES = (b"", b"\x00", b"\xff\xfe", b"\n", b",", b'"', b"[" * 5000, b"{", b"-", b"9" * 400, b"NaN", b"\r", b"1e999")


def mutation_seeds() -> range:
    """Return the seeds of the mutations to try, from the environment or a few by default."""
    first, _, end = os.environ.get(VARIABLE, str(_DEFAULT_COUNT)).rpartition("-")
    return range(int(first or 0), int(end))


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Return content with one to three changes; JSON often remains valid, with different values."""
    for _ in range(rng.randint(1, 3)):
        change = rng.choice((_flip, _cut, _splice, _repeat, _insert, _zero, _change_json, _change_json))
        content = change(content, rng)
    return content


def _offset(content: bytes, rng: random.Random) -> int:
    return rng.randint(0, len(content))


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 16))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: _offset(content, rng)]


def _splice(content: bytes, rng: random.Random) -> bytes:
    first, second = sorted((_offset(content, rng), _offset(content, rng)))
    return content[:first] + content[second:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    first = _offset(content, rng)
    second = min(len(content), first + rng.randint(1, 2000))
    return content[:second] + content[first:second] * rng.randint(1, 5) + content[second:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    offset = _offset(content, rng)
    return content[:offset] + rng.choice(_BYTES) + content[offset:]


def _zero(content: bytes, rng: random.Random) -> bytes:
    first = _offset(content, rng)
    length = min(len(content) - first, rng.randint(1, 4096))
    return content[:first] + bytes(length) + content[first + length :]


def _change_json(content: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _flip(content, rng)
    setters: list[tuple[Callable[[Any], None], Any]] = []

    def visit(node: Any) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            setters.append((lambda new, key=key: node.__setitem__(key, new), node[key]))
            visit(node[key])

    visit(value)
    if setters:
        replace, old = rng.choice(setters)
        replace(rng.choice((*_VALUES, [old], {"x": old}, str(old))))
    return json.dumps(value).encode("utf-8", "surrogatepass")
