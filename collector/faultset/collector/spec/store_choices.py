"""The choice of what runs the stores of an application: Redis in their place, or their own servers, all or some."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from faultset.core.suggestions import unknown_name

StoreChoice = Annotated[str, Field(pattern=r"^[a-z]+(,[a-z]+)*$")]
"""`original`, or the kinds of stores of which the own servers run, in the order of the alphabet with commas."""
REDIS_STORES = "redis"
"""What runs unless something else is asked for; a plan does not say it."""
ALL_ORIGINAL = "original"


def parse_store_choice(text: str | None, kinds: Collection[str]) -> StoreChoice | None:
    """Return a choice as plans hold it, None for the usual one.

    >>> parse_store_choice("postgresql,memcached", ["kafka", "memcached", "postgresql"])
    'memcached,postgresql'

    Parameters
    ----------
    kinds
        The kinds of stores of which there are original servers.

    Raises
    ------
    UsageError
        There is no such kind; names the nearest.
    """
    if text is None or text == REDIS_STORES:
        return None
    if text == ALL_ORIGINAL:
        return ALL_ORIGINAL
    names = {name.strip() for name in text.split(",")}
    for name in sorted(names - set(kinds)):
        raise unknown_name("choice of stores", name, (REDIS_STORES, ALL_ORIGINAL, *kinds))
    return ALL_ORIGINAL if names == set(kinds) else ",".join(sorted(names))


def chosen_kinds(choice: StoreChoice | None, kinds: Collection[str]) -> frozenset[str]:
    """Return the kinds of stores of which the own servers run by a choice."""
    if choice is None or choice == REDIS_STORES:
        return frozenset()
    return frozenset(kinds if choice == ALL_ORIGINAL else choice.split(","))
