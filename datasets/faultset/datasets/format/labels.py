"""The label of an episode: what really happened in it, one field for each column of `truth/label.parquet`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

NoFaultKind = Literal["plain", "disturbed", "sham", "unlabelled"]
Verdict = Literal["manifest", "latent", "silent", "unknown", "none"]


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """An object at fault."""

    kind: str
    """Kind of the object, for instance `Service`."""
    name: str
    service: str
    """Service that it belongs to; a localizer has to name this one."""
    accepted: tuple[str, ...]
    """Names of services that are a right answer too."""
    metric: str | None = None
    """The metric that shows the cause, where the source of the data names one."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """What really happened in an episode. Times are UTC nanoseconds; what never happened is None."""

    episode: str
    fault: str | None
    """Name of the fault; None in a no-fault episode."""
    no_fault_kind: NoFaultKind | None
    """None in a fault episode."""
    targets: tuple[str, ...]
    """Services that the fault was applied to."""
    root_causes: tuple[RootCause, ...]
    system_level: str | None
    fault_type: str | None
    paper_number: int | None
    """Row of Table 2 in the AIOpsLab paper."""
    category: str | None
    """functional or symptomatic."""
    parameters: Mapping[str, Any]
    """Seeded parameters of the fault."""
    inject_start_ns: int | None
    inject_done_ns: int | None
    effective_ns: int | None
    """First confirmed sign of the fault."""
    recover_start_ns: int | None
    recover_done_ns: int | None
    healthy_again_ns: int | None
    view_start_ns: int
    view_end_ns: int
    """End of the view, half-open."""
    reference_end_ns: int
    """End of the window that is known to be healthy."""
    verdict: Verdict
    first_manifest_ns: int | None
    """First second in which clients felt the fault."""
    profile: str
    workload: Mapping[str, Any]
    seed: int
    host: Mapping[str, Any]
    """Load of the host while the episode ran."""
    clock_offsets: Mapping[str, int]
    """Offset of each source's clock in nanoseconds."""

    @property
    def is_faulty(self) -> bool:
        """Whether a fault was injected."""
        return self.fault is not None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Label:
        """Make a label of a row of the table: times as integers under the columns' names, JSON fields decoded."""
        fields = {name + "_ns" if name in LABEL_TIMES else name: value for name, value in row.items()}
        fields["targets"] = tuple(row["targets"])
        fields["root_causes"] = tuple(
            # Datasets made before causes could name a metric do not have that field.
            RootCause(**(cause | {"accepted": tuple(cause["accepted"] or ())}))
            for cause in row["root_causes"]
        )
        return cls(**fields)


LABEL_TIMES = frozenset(name.removesuffix("_ns") for name in Label.__annotations__ if name.endswith("_ns"))
"""Columns of the table that are times; their fields end in `_ns`."""
