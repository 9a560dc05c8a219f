"""What an answer is worth by an exported label: numbers from 0 to 1, for judges that know one answer at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from faultset.agents.interface.session import RecordedTask
from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.reading.documents import validation_sentence
from faultset.core.reading.regular_files import read_regular
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.localization import score_ranking

_MOST_BYTES = 1 << 20


class TaskLabel(BaseModel):
    """What is true of an episode, as much of it as answers are judged by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: RecordedTask
    """What is asked."""
    fault: bool
    """Whether there is a fault."""
    causes: tuple[tuple[str, ...], ...] = ()
    """For every root cause the services accepted for it."""
    candidates: tuple[str, ...]
    """Services that an answer may name."""
    system_level: str | None = None
    fault_type: str | None = None
    diagnoses: tuple[tuple[str, str], ...] = ()
    """Pairs of level and type of which each is right, where there are several faults."""


def label_of(truth: Truth, task: RecordedTask) -> TaskLabel:
    """Return the label of an episode for a task."""
    return TaskLabel(
        task=task,
        fault=truth.faulty,
        causes=truth.causes,
        candidates=truth.candidates,
        system_level=truth.system_level,
        fault_type=truth.fault_type,
        diagnoses=tuple(sorted(truth.diagnoses)) if truth.faults else (),
    )


def read_label(path: Path) -> TaskLabel:
    """Read an exported label; raise DataError for what is none."""
    content = read_regular(path, limit_bytes=_MOST_BYTES)
    try:
        return TaskLabel.model_validate(json.loads(content))
    except ValidationError as problem:
        raise DataError(f"{printable(path)} is no label of a task: {validation_sentence(problem)}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{printable(path)} is not JSON; export the tasks again") from None


def read_answer(path: Path) -> dict[str, Any] | None:
    """Return the answer in a file that `faultset agents serve` has written; None for whatever else is there."""
    try:
        found = json.loads(read_regular(path, limit_bytes=_MOST_BYTES))
    except (DataError, ValueError, RecursionError):
        return None
    answer = found.get("answer") if isinstance(found, dict) else None
    return answer if isinstance(answer, dict) else None


def grades(label: TaskLabel, answer: Mapping[str, Any] | None) -> dict[str, float]:
    """Return what an answer is worth: the parts that are asked, and "reward", the least of them.

    Detection and diagnosis are right or wrong; of several faults a diagnosis names one. Localization is the chance that
    the first named service is a root cause when ties are broken at random; without a fault it is right to name none.
    Whatever is missing is worth nothing.
    """
    given = answer or {}
    asked = ("detection", "localization", "diagnosis") if label.task == "all" else (label.task,)
    found: dict[str, float] = {}
    if "detection" in asked:
        found["detection"] = float(given.get("fault") is label.fault)
    if "localization" in asked:
        found["localization"] = _localization(label, given.get("services"), given.get("ordered", True) is not False)
    if "diagnosis" in asked:
        known = all(part in given for part in ("system_level", "fault_type"))
        right = label.diagnoses or ((label.system_level, label.fault_type),)
        named = (_plain(given.get("system_level")), _plain(given.get("fault_type")))
        found["diagnosis"] = float(known and named in {(_plain(level), _plain(kind)) for level, kind in right})
    return {"reward": min(found.values()), **found}


def _localization(label: TaskLabel, services: Any, ordered: bool) -> float:
    if not isinstance(services, list):
        return 0.0
    names = [name for name in dict.fromkeys(map(str, services)) if name in label.candidates]
    if not label.fault:
        return float(not services)
    if not names or not label.causes:
        return 0.0
    scores = {name: float(len(names) - place) if ordered else 1.0 for place, name in enumerate(names)}
    return score_ranking(scores, [frozenset(cause) for cause in label.causes], label.candidates).ac[1]


def _plain(word: Any) -> str | None:
    return cast("str", word).strip().lower() if isinstance(word, str) else None
