"""Values of the options of `evaluate`: lists of names, groups of baselines, delays, amounts of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from faultset.core.errors import DataError, UsageError
from faultset.core.suggestions import unknown_name

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec
    from faultset.datasets.dataset import Dataset

DELAYS_S = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""Doubling, because the first seconds matter most; a curve of a three-minute fault has six points."""
_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def names(texts: Iterable[str]) -> list[str]:
    """Split repeated, comma-separated options into names, in order and once each."""
    return list(dict.fromkeys(part.strip() for text in texts for part in text.split(",") if part.strip()))


def chosen_tasks(texts: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen tasks, all when none is named."""
    wanted = names(texts)
    for name in wanted:
        if name not in known:
            raise unknown_name("task", name, known)
    return tuple(task for task in known if not wanted or task in wanted)


GROUPS = ("default", "all", "named", "methods", "rules", "controls")
"""What can be given instead of names: everything but slow methods, everything, or one kind."""
_KINDS = {"named": ("named",), "methods": ("method", "own"), "rules": ("rule",), "controls": ("control",)}


def chosen_baselines(texts: Iterable[str]) -> list[BaselineSpec]:
    """Look baselines up, given by name or group; nothing means the group "default".

    "default" is everything that is installed except what is declared slow and is not one of the named methods.
    """
    from faultset.baselines.api.registry import get_baseline, list_baselines

    wanted = names(texts) or ["default"]
    chosen: dict[str, BaselineSpec] = {}
    for name in wanted:
        if name in GROUPS:
            chosen |= {spec.name: spec for spec in list_baselines().values() if _belongs(spec, name)}
        else:
            chosen[name] = get_baseline(name)
    return [chosen[name] for name in sorted(chosen)] if any(n in GROUPS for n in wanted) else list(chosen.values())


def left_out(chosen: Iterable[BaselineSpec]) -> list[str]:
    """Name the slow baselines that a choice does not hold."""
    from faultset.baselines.api.registry import list_baselines

    there = {spec.name for spec in chosen}
    return [name for name, spec in list_baselines().items() if spec.speed == "slow" and name not in there]


def _belongs(spec: BaselineSpec, group: str) -> bool:
    if group == "default":
        return spec.speed != "slow" or spec.kind in ("named", "control")
    return group == "all" or spec.kind in _KINDS[group]


def chosen_delays(text: str | None) -> tuple[float, ...]:
    """Read the grid of a delay curve: "auto", or seconds by comma.

    Examples
    --------
    >>> chosen_delays("60,0,15s")
    (0.0, 15.0, 60.0)
    """
    if text is None or text == "none":
        return ()
    if text == "auto":
        return DELAYS_S
    found = set()
    for part in names([text]):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)s?", part)
        if match is None:
            raise UsageError(f'"{part}" is not a delay; write auto, or seconds by comma, for instance 0,10,30')
        found.add(float(match[1]))
    return tuple(sorted(found))


def memory_bytes(text: str) -> int:
    """Read an amount of memory such as 2GiB or 500MB.

    Examples
    --------
    >>> memory_bytes("2GiB"), memory_bytes("500MB")
    (2147483648, 500000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?)B?\s*", text.upper())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f'"{text}" is not an amount of memory; write for instance 2GiB or 500MB')
    amount = int(float(match[1]) * _UNITS[match[2]])
    if amount < 256 << 20:
        raise UsageError(f"a memory limit of {text} is too little to load an episode; give at least 256MiB")
    return amount


def check_content(dataset: Dataset, threads: int) -> None:
    """Compare every file of a version with its checksum.

    Results name the version they belong to, so the content must be the version's; and a damaged file would
    otherwise look like the failure of every baseline that reads it.
    """
    wrong = dataset.differing_files(threads)
    if wrong:
        total = sum(map(len, dataset.files.values()))
        raise DataError(
            f"dataset {dataset.root} version {dataset.version} is damaged: {len(wrong)} of {total} files "
            f"differ from their checksum (first: {wrong[0].relative_to(dataset.root)}); restore them, "
            'or open another version ("faultset dataset versions" lists them)'
        )
