"""How many episodes may run at a time, as an option gives it."""

from __future__ import annotations

from typing import Any

import click


class JobLimit(click.ParamType):
    """A number of episodes, or `auto`, which becomes None."""

    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Return the number; fail when the value is neither a positive number nor auto."""
        if value == "auto":
            return None
        if not str(value).isdecimal() or not 0 < int(value) < 10_000:
            self.fail(f"a number of episodes from 1 to 9999, or auto, is needed; found {value!r}", param, ctx)
        return int(value)
