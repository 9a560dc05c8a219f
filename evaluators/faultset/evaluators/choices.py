"""Understanding what a person asked `evaluate` for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from faultset.datasets.errors import DataError, UsageError
from faultset.datasets.suggestions import unknown_name

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec
    from faultset.datasets.versions import Dataset

_UNITS = {"": 1, "B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def names(texts: Iterable[str]) -> list[str]:
    """Split repeated, comma-separated options into names, in order and once each."""
    return list(dict.fromkeys(part.strip() for text in texts for part in text.split(",") if part.strip()))


def chosen_tasks(texts: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the tasks that are asked for, all when none is named."""
    asked = names(texts)
    for name in asked:
        if name not in known:
            raise unknown_name("task", name, known)
    return tuple(task for task in known if not asked or task in asked)


def chosen_baselines(texts: Iterable[str]) -> list[BaselineSpec]:
    """Look the named baselines up; "all" or nothing means every one that is installed."""
    from faultset.baselines.registry import baselines, get

    asked = names(texts)
    if asked and asked != ["all"]:
        return [get(name) for name in asked if name != "all"] if "all" not in asked else list(baselines().values())
    return list(baselines().values())


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
    from concurrent.futures import ThreadPoolExecutor

    from faultset.datasets.versions import sha256_of

    files = [
        (dataset.path(episode) / name, record.sha256)
        for episode, records in dataset.files.items()
        for name, record in records.items()
    ]
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda file: sha256_of(file[0]), files))
    wrong = [path for (path, expected), digest in zip(files, found, strict=True) if digest != expected]
    if wrong:
        raise DataError(
            f"dataset {dataset.root} version {dataset.version} is damaged: {len(wrong)} of {len(files)} files "
            f"differ from their checksum (first: {wrong[0].relative_to(dataset.root)}); restore them, "
            'or open another version ("faultset dataset versions" lists them)'
        )
