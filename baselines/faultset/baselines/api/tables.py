"""How baselines read an episode: its tables, and the states of objects."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from faultset.datasets.table_reading import read_frame, read_table, read_wide

__all__ = ["parse_state", "read_frame", "read_table", "read_wide"]


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    return json.loads(text)


def parse_state(text: str) -> dict[str, Any]:
    """Parse the state of an object; return an empty state if it is not a JSON object."""
    try:
        state = _parse(text)
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}
