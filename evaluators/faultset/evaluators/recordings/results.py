"""The answers of detectors on the recordings of a dataset, with their alarms, tables and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.files import parquet_path, replacing
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS, duration_text
from faultset.evaluators.leaderboards.records import Table
from faultset.evaluators.recordings.detection_windows import DetectionWindow
from faultset.evaluators.recordings.detector_runs import DetectorRun, RecordingFacts, group_detector_runs
from faultset.evaluators.recordings.tables import build_recording_tables
from faultset.evaluators.results.output_folder import ALARMS_FILE, DETECTIONS_FILE
from faultset.evaluators.results.rows import ResultRow, write_rows
from faultset.evaluators.scoring.thresholds import Reference

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

ALARMS = pa.schema(
    [
        ("recording", pa.string()),
        ("baseline", pa.string()),
        ("kind", pa.string()),
        ("seed", pa.int64()),
        ("alarm_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("outcome", pa.string()),
        ("incident", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class RecordingResults:
    """The answers of detectors on recordings, with their alarms, tables and files."""

    rows: tuple[ResultRow, ...] = field(repr=False)
    """One answer per detector, seed and tested window."""
    specs: tuple[BaselineSpec, ...] = field(default=(), repr=False)
    """The detectors."""
    location: str
    """Folder or URL of the dataset."""
    windows: Mapping[str, DetectionWindow] = field(repr=False)
    """Episode id -> window."""
    facts: Mapping[str, RecordingFacts] = field(repr=False)
    """Recording -> its watched time and truth."""
    split: str = ""
    """Split of the recordings."""
    threshold_rule: str = Reference().name
    """Threshold policy of the detectors."""
    by_policy: Mapping[str, Sequence[ResultRow]] = field(default_factory=dict, repr=False)
    """Other threshold policy -> the same answers with its thresholds."""
    digest: str = ""
    """SHA-256 of the dataset version's file list."""
    isolation: str = ""
    """How detectors were isolated."""

    @cached_property
    def runs(self) -> dict[str, list[DetectorRun]]:
        """Detector -> its alarms and scores, by recording and seed."""
        return group_detector_runs(self.rows, self.windows, self.facts)

    @property
    def counts_text(self) -> str:
        """The watched time and the incidents in a few words."""
        items = [item for facts in self.facts.values() for item in facts.incidents]
        counted = sum(len(facts.scored_headline) for facts in self.facts.values())
        scored = sum(item.scored for item in items)
        watched_s = sum(facts.watched_ns for facts in self.facts.values()) / SECOND_NS
        return (
            f"{duration_text(watched_s)} watched, {count_text(len(items), 'incident')}: {counted} in headlines, "
            f"{scored - counted} unnoticed by clients, {len(items) - scored} not scored"
        )

    @property
    def summary(self) -> str:
        """The recordings, their references and their split in one sentence."""
        references = sorted({facts.reference_s for facts in self.facts.values()})
        spans = " to ".join(f"{seconds:g}" for seconds in dict.fromkeys((references[0], references[-1])))
        count = count_text(len(self.facts), "recording")
        return f"{count}, {self.counts_text}; references of {spans} s, split {self.split}"

    def tables(self, seed: int) -> list[Table]:
        """Return the tables of detectors; `seed` is for tests that draw sign flips."""
        by_policy = {
            policy: group_detector_runs(rows, self.windows, self.facts) for policy, rows in self.by_policy.items()
        }
        reconstructions = [spec.name for spec in self.specs if getattr(spec, "reconstruction", False)]
        return build_recording_tables(self.runs, seed, self.threshold_rule, by_policy, reconstructions)

    def list_alarm_rows(self) -> Iterable[dict[str, Any]]:
        """Yield the alarms of all detectors with their outcomes; one row without a time for a run without alarms."""
        for name, runs in self.runs.items():
            for run in runs:
                source = {"recording": run.facts.recording, "baseline": name, "kind": run.rows[0].kind}
                source |= {"seed": run.seed}
                for alarm in run.alarms:
                    times = {"alarm_ns": alarm.start_ns, "end_ns": alarm.end_ns}
                    yield {**source, **times, "outcome": alarm.outcome, "incident": alarm.incident}
                if not run.alarms:
                    yield source

    def write(self, folder: Path) -> None:
        """Write all answers and all alarms into a folder of results."""
        write_rows(self.rows, folder / DETECTIONS_FILE)
        with replacing(parquet_path(folder / ALARMS_FILE)) as temporary:
            pq.write_table(pa.Table.from_pylist(list(self.list_alarm_rows()), schema=ALARMS), temporary)
