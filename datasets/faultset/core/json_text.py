"""Write canonical JSON; read JSON lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and without spaces, so that equal mappings give identical strings."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD.

    They come from JSON that was truncated within an emoji.

    >>> replace_surrogates(json.loads('"cut \\\\ud83d"'))
    'cut \ufffd'
    """
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file in order; lines without a complete object are skipped."""
    records = []
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
