"""Canonical JSON: the one text form of a mapping, wherever a table holds one."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no blanks, so that equal mappings are equal strings."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
