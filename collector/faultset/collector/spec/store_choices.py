"""The names of what runs the stores of an application: Redis in their place, or their own servers."""

from __future__ import annotations

from typing import Literal, get_args

from faultset.core.suggestions import unknown_name

StoreChoice = Literal["redis", "original"]
STORE_CHOICES: tuple[StoreChoice, ...] = get_args(StoreChoice)
REDIS_STORES: StoreChoice = "redis"
"""What runs unless something else is asked for; a plan does not say it."""


def parse_store_choice(name: str | None) -> StoreChoice | None:
    """Return a choice as plans hold it, None for the usual one; raise UsageError when there is none of that name."""
    known: dict[str, StoreChoice] = {choice: choice for choice in STORE_CHOICES}
    if name is not None and name not in known:
        raise unknown_name("choice of stores", name, known)
    return None if name is None or name == REDIS_STORES else known[name]
