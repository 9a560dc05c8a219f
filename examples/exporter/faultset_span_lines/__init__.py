"""An exporter: the spans of each episode as JSON lines, and one file with all labels."""

from __future__ import annotations

import json
from pathlib import Path

from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions

COLUMNS = ["time", "trace_id", "span_id", "service", "operation", "duration_ns"]


class SpanLines:
    """One file of spans for each episode that has spans."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder
        self._labels: dict[str, str | None] = {}

    def unavailable_reason(self, episode: str) -> str | None:
        """Return why an episode cannot be written; None if it can."""
        return None if len(self._dataset.view(episode).spans()) else "it has no spans"

    def write(self, episode: str) -> None:
        """Write one episode."""
        spans = self._dataset.view(episode).spans()[COLUMNS]
        spans.to_json(self._folder / f"{episode}.jsonl", orient="records", lines=True, date_unit="ns")
        self._labels[episode] = self._dataset.label(episode).fault

    def finish(self) -> None:
        """Write the files that cover all episodes."""
        (self._folder / "labels.json").write_text(json.dumps(self._labels, indent=1, sort_keys=True))
