"""Reading trajectories that somebody else has written: any version 1.x, unknown keys left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from faultset.agents.trajectories.model import LENIENT, SCHEMA_VERSION, Trajectory
from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.core.reading.documents import parse_object, validation_sentence
from faultset.core.reading.regular_files import read_regular

LIMIT_BYTES = 256 << 20
_VERSION = re.compile(r"ATIF-v1\.\d{1,3}")


def read_trajectory(path: Path) -> Trajectory:
    """Read a trajectory file of any version 1.x.

    Raises
    ------
    DataError
        It is no such file, in one sentence.
    """
    return parse_trajectory(parse_object(read_regular(path, limit_bytes=LIMIT_BYTES), str(path)), str(path))


def parse_trajectory(document: dict[str, Any], origin: str) -> Trajectory:
    """Return parsed JSON as a trajectory; see `read_trajectory`.

    Parameters
    ----------
    origin
        Names it in the error.
    """
    version = document.get("schema_version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise DataError(
            f"{printable(origin)} should be ATIF-v1.0 or later, it says {quoted(version)}; give a trajectory"
        )
    try:
        content = to_json(_as_written_now(document))
        return Trajectory.model_validate_json(content, context=LENIENT)
    except ValidationError as problem:
        raise DataError(f"{printable(origin)}: {validation_sentence(problem)}; restore the file") from None
    except (ValueError, RecursionError) as problem:
        reason = printable(str(problem).partition("\n")[0][:200])
        raise DataError(f"{printable(origin)} cannot be read as a trajectory ({reason}); restore the file") from None


def _as_written_now(document: dict[str, Any]) -> dict[str, Any]:
    """Say the version that we write, also in the trajectories inside."""
    changed = {**document, "schema_version": SCHEMA_VERSION}
    inside = document.get("subagent_trajectories")
    if isinstance(inside, list):
        changed["subagent_trajectories"] = [_as_written_now(one) if isinstance(one, dict) else one for one in inside]
    return changed
