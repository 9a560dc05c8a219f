"""Curves: how often methods are right as the alarm comes later, or as they see more."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.evaluators.statistics.estimates import Estimate


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """How often a method is right when the alarm, or the end of what it sees, comes some seconds later."""

    at_s: float
    """Seconds after the onset; of what is seen after a detector's alarm, seconds after that."""
    right: Estimate
    """Share of faults with a true alarm, AC@1, or share of diagnoses of which both parts are right."""
    right_otherwise: float
    """The same on the same episodes when the alarm is not delayed and the whole view is seen."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How one method does on headline episodes of one application as the alarm comes later, or it sees more."""

    over: str
    """"delay" of the alarm, or "evidence" that is seen after it."""
    task: str
    protocol: str
    """Of the table that the curve belongs to."""
    baseline: str
    kind: str
    app: str
    points: tuple[CurvePoint, ...]

    @property
    def title(self) -> str:
        """Say what the curve shows."""
        right = {
            "detection": "Share of faults with a true alarm",
            "localization": "AC@1",
            "rca": "Level and type right",
        }
        later = "the alarm comes later" if self.over == "delay" else "only so much of the view is seen"
        return f"{right[self.task]} when {later}"

    @property
    def since(self) -> str:
        """Say from when on its seconds are counted."""
        of_alarm = self.over == "evidence" and self.task != "detection" and self.protocol == "detected"
        return "the alarm of a detector" if of_alarm else "the onset"
