"""Which methods of a ranked list a page shows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def top_methods(
    names: Sequence[str], kinds: Mapping[str, str], *, methods: int = 10, controls: int = 3
) -> tuple[list[str], list[str]]:
    """Part a ranked list into what is shown at once and what is folded, both in the order given.

    Shown are the first methods, all that the AIOpsLab paper names, and the first controls. A tail of one or two is
    not worth folding.
    """
    real = [name for name in names if kinds[name] != "control"]
    others = [name for name in names if kinds[name] == "control"]
    shown = {*real[:methods], *others[:controls], *(name for name in real if kinds[name] == "named")}
    tail = [name for name in names if name not in shown]
    if len(tail) <= 2:
        return list(names), []
    return [name for name in names if name in shown], tail
