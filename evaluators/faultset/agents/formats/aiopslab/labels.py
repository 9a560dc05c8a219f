"""The labels of AIOpsLab's problems, and how they changed.

`labels.csv` holds the answers that AIOpsLab's problems expect, taken from its repository (MIT licence) at commit
ddf7e406, as of 2026-11-22. An empty cell means that a label is unknown or does not apply.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from importlib import resources

LABEL_VERSION = "AIOpsLab ddf7e406 (2026-11-22)"
RULE_VERSION = "rule: every problem but noop has a fault"
TASK_WORDS = {
    "detection": "detection",
    "localization": "localization",
    "analysis": "diagnosis",
    "mitigation": "mitigation",
}


@dataclass(frozen=True, kw_only=True)
class ProblemLabel:
    """The expected answer to one problem."""

    stem: str
    task: str
    app: str = ""
    fault: bool
    service: str = ""
    alias: str = ""
    """Another service that counts as correct."""
    system_level: str = ""
    fault_type: str = ""
    version: str = LABEL_VERSION

    @property
    def cluster(self) -> str:
        """Return the fault and its target; problems that share both are not independent."""
        return f"{self.app}/{self.stem}/{self.service}"


@dataclass(frozen=True)
class LabelChange:
    """One change of labels in the source."""

    day: date
    stems: tuple[str, ...]
    task: str
    description: str


CHANGES = (
    LabelChange(
        date(2025, 10, 11),
        ("revoke_auth_mongodb", "user_unregistered_mongodb"),
        "localization",
        "the service that owns the store is also accepted",
    ),
    LabelChange(
        date(2025, 11, 6),
        ("auth_miss_mongodb",),
        "diagnosis",
        "the system level changed from Virtualization to Application",
    ),
)


def task_of(problem_id: str) -> str:
    """Return the task named in a problem id, in faultset's terms; `other` if there is none.

    Ids cannot be split at hyphens, because their first parts may contain hyphens, and `noop_detection_<app>-1` has the
    task in the middle.
    """
    words = re.findall("|".join(TASK_WORDS), problem_id)
    return TASK_WORDS[words[-1]] if words else "other"


@functools.cache
def _read_labels() -> dict[str, ProblemLabel]:
    text = (resources.files(__package__ or "") / "labels.csv").read_text("utf-8")
    return {
        row["problem_id"]: ProblemLabel(
            stem=row["stem"],
            task=TASK_WORDS[row["task"]],
            app=row["app"],
            fault=row["expected_detection"] == "Yes",
            service=row["faulty_service"],
            alias=row["accepted_alias"],
            system_level=row["system_level"],
            fault_type=row["fault_type"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def label_of(problem_id: str) -> ProblemLabel | None:
    """Return the current label of a problem.

    The label of an unknown id says only whether there is a fault. An id without a task has no label.
    """
    label = _read_labels().get(problem_id)
    task = task_of(problem_id)
    if label is not None or task == "other":
        return label
    stem = re.sub(rf"[-_]({'|'.join(TASK_WORDS)}).*", "", problem_id)
    return ProblemLabel(stem=stem, task=task, fault="noop" not in problem_id, version=RULE_VERSION)


def find_changes_since(label: ProblemLabel, time_s: float) -> list[LabelChange]:
    """Return the changes of a label since a time."""
    day = datetime.fromtimestamp(time_s, UTC).date()
    return [
        change for change in CHANGES if label.stem in change.stems and label.task == change.task and day < change.day
    ]


def undo_change(label: ProblemLabel, change: LabelChange) -> ProblemLabel:
    """Return the label as it was before a change."""
    if change.task == "localization":
        return replace(label, alias="")
    return replace(label, system_level="Virtualization")
