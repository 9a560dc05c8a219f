"""One value of a specification changed, for tests of what is refused."""

from __future__ import annotations

from typing import Any

import yaml


def changed(text: str, *path: Any, value: Any) -> str:
    """Return the text of a specification with the value at a path replaced."""
    whole = yaml.safe_load(text)
    place = whole
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return yaml.safe_dump(whole, sort_keys=False)
