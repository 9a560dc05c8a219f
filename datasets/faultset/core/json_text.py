"""Canonical JSON: the one text form of a mapping, wherever a table holds one."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no blanks, so that equal mappings are equal strings."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def replace_surrogates(text: str) -> str:
    """Return a text whose halves of surrogate pairs, which no file can hold, are replacement characters.

    JSON has them where somebody cut a text inside of an emoji.

    >>> replace_surrogates(json.loads('"cut \\\\ud83d"'))
    'cut \ufffd'
    """
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
