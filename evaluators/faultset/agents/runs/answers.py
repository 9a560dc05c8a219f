"""Answers of agents in one form, and service names found in free text.

detection      {"fault": true}
localization   {"services": ["geo"], "ordered": false}; an empty list says that there is no fault
diagnosis      {"system_level": "...", "fault_type": "..."}
root_cause     {"root_causes": [{"service" | "component", "kind" | "reason", "time"?, ...}], ...}
mitigation     {}: the agent says that it is done
other          {"text": "..."}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faultset.agents.runs.record import Status

SYSTEM_LEVELS = ("hardware", "operating system", "virtualization", "application")
FAULT_TYPES = (
    "misconfiguration", "code defect", "authentication issue", "network/storage issue", "operation error",
    "dependency problem",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReadAnswer:
    """What an agent answered, as far as it can be understood."""

    status: Status
    reason: str = ""
    answer: dict[str, Any] | None = None


def understood(task: str, value: Any, candidates: Sequence[str] = ()) -> ReadAnswer:
    """Return a submitted value as an answer of a task.

    Parameters
    ----------
    task
        Detection, localization, diagnosis or mitigation.
    value
        What was submitted, as a Python value.
    candidates
        Services that may be named; without any, every name may.
    """
    if task == "detection":
        word = value.strip().lower() if isinstance(value, str) else ""
        if word in ("yes", "no"):
            return ReadAnswer(status="ok", answer={"fault": word == "yes"})
        return ReadAnswer(status="invalid", reason="the answer is neither Yes nor No")
    if task == "localization":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return ReadAnswer(status="invalid", reason="the answer is no list of service names")
        answer = {"services": list(names), "ordered": False}
        unknown = [name for name in names if candidates and name not in candidates]
        if unknown:
            reason = f"{len(unknown)} of {len(names)} names are no candidates"
            return ReadAnswer(status="invalid", reason=reason, answer=answer)
        return ReadAnswer(status="ok", answer=answer)
    if task == "diagnosis":
        parts = {key: value.get(key) for key in ("system_level", "fault_type")} if isinstance(value, dict) else {}
        if not parts or not all(isinstance(part, str) for part in parts.values()):
            return ReadAnswer(status="invalid", reason="the answer is no pair of system level and fault type")
        words = [str(part).strip().lower() for part in parts.values()]
        if words[0] not in SYSTEM_LEVELS or words[1] not in FAULT_TYPES:
            return ReadAnswer(
                status="invalid", reason="a part of the answer is none of the allowed words", answer=parts
            )
        return ReadAnswer(status="ok", answer=parts)
    return ReadAnswer(status="ok", answer={})


def services_in_text(text: str, candidates: Sequence[str]) -> list[str]:
    """Return the services that a text names, in the order of the candidates.

    A name counts where it is a word of its own; longer names are looked for first, so that `mongodb-geo` is no `geo`.

    Examples
    --------
    >>> services_in_text("mongodb-geo refuses `rate`.", ["geo", "mongodb-geo", "rate"])
    ['mongodb-geo', 'rate']
    """
    if not candidates:
        return []
    longest_first = sorted(set(candidates), key=lambda name: (-len(name), name))
    pattern = rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])"
    found = set(re.findall(pattern, text))
    return [name for name in dict.fromkeys(candidates) if name in found]


def from_text(text: str, candidates: Sequence[str]) -> ReadAnswer:
    """Return free text as an answer: the candidates that it names, tied."""
    named = services_in_text(text, candidates)
    if named:
        answer = {"services": named, "ordered": False, "text": text}
        return ReadAnswer(status="ok", reason="services were found in free text", answer=answer)
    if not text.strip():
        return ReadAnswer(status="no_answer", reason="the answer is empty")
    why = "free text names no candidate" if candidates else "free text, and no candidates were given"
    return ReadAnswer(status="unparsed", reason=why, answer={"text": text})
