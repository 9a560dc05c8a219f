"""The choice between Redis and original servers for an application's stores."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from faultset.core.errors import unknown_name

StoreChoice = Annotated[str, Field(pattern=r"^[a-z]+(,[a-z]+)*$")]
"""`original`, or the kinds of stores that run on original servers, comma-separated in alphabetical order."""
REDIS_STORES = "redis"
"""The default, which plans leave out."""
ALL_ORIGINAL = "original"


def parse_store_choice(text: str | None, kinds: Collection[str]) -> StoreChoice | None:
    """Parse a choice into the form used in plans; None for the default. Raise UsageError for an unknown kind.

    >>> parse_store_choice("postgresql,memcached", ["kafka", "memcached", "postgresql"])
    'memcached,postgresql'
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
    """Return the kinds of stores that run on original servers."""
    if choice is None or choice == REDIS_STORES:
        return frozenset()
    return frozenset(kinds if choice == ALL_ORIGINAL else choice.split(","))
