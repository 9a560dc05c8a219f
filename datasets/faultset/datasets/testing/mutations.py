"""Files changed at random, the same way for the same seed, to see what a reader does with them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from typing import Any

VARIABLE = "FAULTSET_MUTATIONS"
"""Environment variable: how many mutations a check of a reader tries, or from which to before which: `2000-3000`."""
_USUAL = 12
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**63, -(2**63), 2**80, 1e308, -1e-308, float("nan"), float("inf"), "", "\x00", "\ud800",
    "\x1b[2J", "../../x", "/etc/passwd", "x" * 70_000, [], {}, [[]], {"": {}}, [None], "NaN", "1e999", "٣",
)  # fmt: skip
_BYTES = (b"", b"\x00", b"\xff\xfe", b"\n", b",", b'"', b"[" * 5000, b"{", b"-", b"9" * 400, b"NaN", b"\r", b"1e999")


def mutation_seeds() -> range:
    """Return the seeds of the mutations to try: those that the environment asks for, else a few."""
    first, _, end = os.environ.get(VARIABLE, str(_USUAL)).rpartition("-")
    return range(int(first or 0), int(end))


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return content with one to three changes; JSON often stays JSON, with other values in it."""
    for _ in range(rng.randint(1, 3)):
        change = rng.choice((_flipped, _cut, _spliced, _repeated, _inserted, _zeroed, _json_changed, _json_changed))
        content = change(content, rng)
    return content


def _place(content: bytes, rng: random.Random) -> int:
    return rng.randint(0, len(content))


def _flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 16))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: _place(content, rng)]


def _spliced(content: bytes, rng: random.Random) -> bytes:
    first, second = sorted((_place(content, rng), _place(content, rng)))
    return content[:first] + content[second:]


def _repeated(content: bytes, rng: random.Random) -> bytes:
    first = _place(content, rng)
    second = min(len(content), first + rng.randint(1, 2000))
    return content[:second] + content[first:second] * rng.randint(1, 5) + content[second:]


def _inserted(content: bytes, rng: random.Random) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.choice(_BYTES) + content[place:]


def _zeroed(content: bytes, rng: random.Random) -> bytes:
    first = _place(content, rng)
    length = min(len(content) - first, rng.randint(1, 4096))
    return content[:first] + bytes(length) + content[first + length :]


def _json_changed(content: bytes, rng: random.Random) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _flipped(content, rng)
    holders: list[tuple[Callable[[Any], None], Any]] = []

    def visit(held: Any) -> None:
        keys = list(held) if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
        for key in keys:
            holders.append((lambda new, key=key: held.__setitem__(key, new), held[key]))
            visit(held[key])

    visit(value)
    if holders:
        replace, old = rng.choice(holders)
        replace(rng.choice((*_VALUES, [old], {"x": old}, str(old))))
    return json.dumps(value).encode("utf-8", "surrogatepass")
