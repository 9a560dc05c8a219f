"""What names and numbers in a dataset's files may be, as types that are checked when a file is read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from faultset.core.errors import DataError
from faultset.core.printable import quoted

_EPISODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
_LONGEST = 1000
_DAY_NS = 86_400 * 1_000_000_000
LONGEST_VIEW_NS = 31 * _DAY_NS


def _readable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("should be printable text")
    return text


Name = Annotated[str, StringConstraints(max_length=_LONGEST), AfterValidator(_readable)]
"""Printable text of at most a thousand characters."""
EpisodeId = Annotated[str, StringConstraints(pattern=f"^{_EPISODE_ID.pattern}$")]
"""An opaque id, which is also the name of a folder: letters, digits and `-`."""
VersionName = Annotated[str, StringConstraints(pattern=r"^(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$")]
EpisodeFile = Annotated[
    str,
    StringConstraints(
        pattern=r"^(context\.json|telemetry/[a-z][a-z0-9_]{0,39}\.parquet|truth/[a-z]+\.(parquet|jsonl))$"
    ),
]
"""Path of a file below its episode's folder."""
TimeNs = Annotated[int, Field(ge=0, lt=1 << 62)]
"""Nanoseconds since 1970."""
Count = Annotated[int, Field(ge=0, lt=1 << 62)]
IntervalS = Annotated[float, Field(ge=0.001, le=LONGEST_VIEW_NS / 1e9)]
"""Sampling interval in seconds."""


def is_episode_id(text: str) -> bool:
    """Whether a text may be the id of an episode."""
    return _EPISODE_ID.fullmatch(text) is not None


def check_episode_id(text: str) -> None:
    """Raise DataError for a text that cannot be the id of an episode."""
    if not is_episode_id(text):
        raise DataError(
            f'episode id {quoted(text)} must consist of letters, digits and "-", at most a hundred; choose another'
        )
