"""AIOpsLab's own scoring, told again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from faultset.agents.formats.aiopslab.labels import ProblemLabel
from faultset.agents.formats.contract import OwnScore


def truth_of(label: ProblemLabel) -> dict[str, Any]:
    """Return a label as it is stored beside a run."""
    return asdict(label)


def scored(answer: Mapping[str, Any] | None, label: ProblemLabel) -> OwnScore | None:
    """Score an answer, None for none at all; the result is None where the label does not say what is right.

    Localization counts an exact list as a success; the right service among n answers is worth 1/n and no success.
    """
    answer = answer or {}
    if label.task == "detection":
        right = answer.get("fault") == label.fault
        return OwnScore(success=right, value=float(right))
    if label.task == "localization" and label.service:
        return _localized(answer.get("services"), [name for name in (label.service, label.alias) if name])
    if label.task == "diagnosis" and label.system_level and label.fault_type:
        level = _same(answer.get("system_level"), label.system_level)
        kind = _same(answer.get("fault_type"), label.fault_type)
        parts = {"system_level": float(level), "fault_type": float(kind)}
        return OwnScore(success=level and kind, value=(level + kind) / 2, parts=parts)
    return None


def _localized(services: Any, accepted: list[str]) -> OwnScore:
    named = services if isinstance(services, list) else []
    if any(named == [name] for name in accepted):
        return OwnScore(success=True, value=1.0)
    among = any(name in named for name in accepted)
    return OwnScore(success=False, value=1 / len(named) if among else 0.0, parts={"is_subset": float(among)})


def _same(answer: Any, wanted: str) -> bool:
    return isinstance(answer, str) and answer.strip().lower() == wanted.strip().lower()
