"""What Nezha says about a fault, and what its own logs say about when it began.

`inject_time` is UTC: at that time stands the telemetry, and the collector's minutes are named after it.
`inject_timestamp` is the same instant in some rows; in others it is eight hours early, because local time was read
as UTC, and up to nine minutes off besides. It is kept as a parameter and not used.

The published answers name two neighbouring log lines or span starts between which the code was changed. The first
request in which they are no longer neighbours is the first sign of the fault. It often comes before `inject_time`,
by up to a minute, and then it is the onset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from faultset.core.errors import DataError
from faultset.datasets.imports.nezha.days import Day, injected_ns, service_of

if TYPE_CHECKING:
    import pandas as pd

KINDS: dict[str, tuple[str, str]] = {
    "return": ("Application", "Code Defect"),
    "exception": ("Application", "Code Defect"),
    "cpu_contention": ("Operating System", "Operation Error"),
    "cpu_consumed": ("Application", "Code Defect"),
    "network_delay": ("Operating System", "Network/Storage Issue"),
}
"""Injected fault to system level and fault type, as our own faults of the kind have them."""

MOST_BROKEN = 0.05
"""Share of healthy requests in which the second event may be missing: those at the edge of a file."""
APPS = {"ts": "train-ticket", "hipster": "online-boutique"}


def answer_files(root: Path) -> list[Path]:
    """Return the files that say where faults were."""
    return sorted((root / "construct_data").glob("root_cause_*.json"))


def read_answers(root: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return namespace -> service -> fault -> where it was, from `root_cause_*.json`."""
    answers = {}
    for path in answer_files(root):
        try:
            answers[path.stem.removeprefix("root_cause_")] = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is not JSON ({error}); restore the file") from error
    return answers


def app_of(day: Day, answers: Mapping[str, Any]) -> str:
    """Return the application of a day: the one whose services its faults were injected into."""
    services = {service_of(fault["inject_pod"]) for fault in day.faults}
    hits = {namespace: len(services & answers[namespace].keys()) for namespace in answers}
    best = max(hits, key=lambda namespace: hits[namespace], default="")
    if not hits.get(best):
        return "train-ticket" if any(name.startswith("ts-") for name in services) else "online-boutique"
    return APPS.get(best, best)


def answer_of(fault: Mapping[str, str], answers: Mapping[str, Any]) -> str | None:
    """Return the published answer for a fault: a metric, or two events joined by `_`."""
    for services in answers.values():
        found = services.get(service_of(fault["inject_pod"]), {}).get(fault["inject_type"])
        if found:
            return str(found)
    return None


@dataclass(frozen=True, kw_only=True)
class ServiceTelemetry:
    """What a service showed in a stretch of time."""

    logs: pd.DataFrame
    """Lines with `time`, `SpanID` and `message`."""
    spans: pd.DataFrame
    """Spans with `start`, `TraceID`, `SpanID`, `ParentID` and `OperationName`."""


def first_sign_ns(answer: str | None, own: ServiceTelemetry, healthy: ServiceTelemetry) -> int | None:
    """Return the time of the first request in which two events are no longer neighbours.

    Requests whose way to the first event is one on which the second does not follow when healthy are left out, and
    a single broken one among whole ones is no sign: it was cut by the edge of a file.

    Parameters
    ----------
    answer
        `A_B`; anything else has no sign.
    own, healthy
        What the service at fault showed in the sampled minutes and in the fault-free time.
    """
    first, joined, second = (answer or "").partition("_")
    if not joined or own.logs.empty or healthy.logs.empty:
        return None
    share = _orders(first, second, healthy).groupby("way")["broken"].mean()
    found = _orders(first, second, own)
    found = found[found["way"].isin(share[share <= MOST_BROKEN].index)].sort_values("time", kind="stable")
    broken = found["broken"].to_numpy(dtype=bool)
    lasting = broken & np.append(broken[1:], True)
    return int(found["time"].to_numpy()[lasting][0]) if lasting.any() else None


def _orders(first: str, second: str, seen: ServiceTelemetry) -> pd.DataFrame:
    """Return each first event with its `time`, the `way` that led to it and whether the second did not follow."""
    import pandas as pd

    ordered = seen.logs.sort_values(["SpanID", "time"], kind="stable")
    text = ordered["message"]
    if first.endswith(" start"):
        begun = seen.spans[seen.spans["OperationName"].str.contains(first.removesuffix(" start"), regex=False)]
        opening = ordered.drop_duplicates("SpanID").set_index("SpanID")["message"].reindex(begun["SpanID"]).fillna("")
        above = seen.spans.drop_duplicates("SpanID").set_index("SpanID")["OperationName"]
        return pd.DataFrame({
            "time": begun["start"].to_numpy(),
            "way": above.reindex(begun["ParentID"]).fillna("").to_numpy(),
            "broken": ~opening.str.contains(second, regex=False).to_numpy(dtype=bool),
        })  # fmt: skip
    here = text.str.contains(first, regex=False).to_numpy(dtype=bool)
    follows = (ordered["SpanID"] == ordered["SpanID"].shift(-1)).to_numpy()
    goes_on = follows & text.shift(-1).fillna("").str.contains(second, regex=False).to_numpy(dtype=bool)
    return pd.DataFrame({"time": ordered["time"].to_numpy()[here], "way": "", "broken": ~goes_on[here]})


def label_of(fault: Mapping[str, str], answer: str | None, sign_ns: int | None) -> dict[str, Any]:
    """Return the fields of the label.

    The onset is `inject_time`, or the first sign of the fault where that comes earlier.
    """
    service = service_of(fault["inject_pod"])
    level, kind = KINDS.get(fault["inject_type"], (None, fault["inject_type"]))
    inject_ns = injected_ns(fault)
    metric = answer if answer and "_" not in answer else None
    return {
        "fault": fault["inject_type"],
        "targets": [service],
        "root_causes": [
            {"kind": "Pod", "name": fault["inject_pod"], "service": service, "accepted": [service], "metric": metric}
        ],
        "system_level": level,
        "fault_type": kind,
        "inject_start": inject_ns if sign_ns is None else min(inject_ns, sign_ns),
        "effective": sign_ns,
        "parameters": {**fault, "answer": answer},
    }


def evidence_of(fault: Mapping[str, str], sign_ns: int | None, moved: str) -> Sequence[Mapping[str, Any]]:
    """Return what was looked at: the first sign of the fault, and where the reference comes from."""
    return (
        {
            "check": "injection",
            "subject": fault["inject_pod"],
            "time": sign_ns,
            "passed": sign_ns is not None,
            "detail": "first request without the order of events that the published answer names"
            if sign_ns is not None
            else "no events to judge by, or their order never changes",
        },
        {"check": "health", "subject": "reference", "time": None, "passed": True, "detail": moved},
    )
