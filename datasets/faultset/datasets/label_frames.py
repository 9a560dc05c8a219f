"""Labels of a dataset as one table for people and for pandas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from faultset.datasets.format.labels import joined

if TYPE_CHECKING:
    from faultset.datasets.episode import Episode

TEXTS = ("app", "fault", "target", "no_fault", "verdict", "cause", "level", "type")
TIMES = ("start", "onset", "felt", "undone", "end")
SECONDS = ("reference_s", "onset_s", "felt_s", "undone_s", "duration_s")


def label_frame(episodes: Iterable[Episode]) -> pd.DataFrame:
    """Return a row for each episode; `Dataset.labels` describes the columns."""
    rows = {episode.id: _row(episode) for episode in episodes}
    index = pd.Index(list(rows), name="episode", dtype=object)
    frame = pd.DataFrame(list(rows.values()), index=index, columns=[*TEXTS, *TIMES, *SECONDS, "onset_ns"], dtype=object)
    for name in TIMES:
        frame[name] = pd.to_datetime(frame[name].astype("Int64"), unit="ns", utc=True)
    return frame.astype({"onset_ns": "Int64"} | dict.fromkeys(SECONDS, "float64"))


def _row(episode: Episode) -> dict[str, Any]:
    label = episode.label
    times = {
        "start": label.view_start_ns,
        "onset": label.onset_ns,
        "felt": label.first_manifest_ns,
        "undone": label.recover_start_ns,
        "end": label.view_end_ns,
    }
    ends = {"reference_s": label.reference_end_ns, "duration_s": label.view_end_ns}
    ends |= {f"{name}_s": times[name] for name in ("onset", "felt", "undone")}
    return {
        "app": episode.context.app,
        "fault": label.fault,
        "target": joined(label.targets) or None,
        "no_fault": label.no_fault_kind,
        "verdict": label.verdict,
        "cause": joined(cause.service for cause in label.root_causes) or None,
        "level": label.system_level,
        "type": label.fault_type,
        **times,
        **{name: label.seconds_into_view(time_ns) for name, time_ns in ends.items()},
        "onset_ns": label.onset_ns,
    }
