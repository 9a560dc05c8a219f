"""Import NAB, the Numenta Anomaly Benchmark: one metric in each file, labelled with windows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.documents import parse_object
from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.regular_files import read_regular
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.contract import Case, ForeignRecording, ImportFormat
from faultset.datasets.imports.series.labelled_series import AnomalyWindow, LabelledSeries
from faultset.datasets.imports.series.sample_files import LabelledSamples, read_samples
from faultset.datasets.imports.telemetry.times import parse_time

WINDOWS = "combined_windows.json"
PROBATION_SHARE, LONGEST_PROBATION = 0.15, 750
"""NAB does not score the first 15 % of a series, at most 750 samples; detectors may learn from them."""
_LIMIT_BYTES = 16 << 20


class NABImport(ImportFormat):
    """A folder with `data/<group>/<series>.csv` and `labels/combined_windows.json`."""

    name = "nab"
    title = "NAB"
    layout = (
        (f"labels/{WINDOWS}", rf"(^|/)labels/{re.escape(WINDOWS)}$"),
        ("data/group/series.csv", r"(^|/)data/[^/]+/[^/]+\.csv$"),
    )
    weakness = (
        f"The labels are the windows of {WINDOWS}, which are longer than the anomalies. Most labels come from "
        "people who looked at plots; only anomalies in realKnownCause have a known cause. Times have no zone and count "
        "as UTC."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        """Return every series."""
        root = unpack(path)
        cases: list[Case] = []
        for labels in sorted(root.rglob(f"labels/{WINDOWS}")):
            files = sorted((labels.parent.parent / "data").glob("*/*.csv"))
            cases += [Case(key=f"{file.parent.name}/{file.stem}", paths=(file, labels)) for file in files]
        if not cases:
            raise DataError(f"{path} holds no NAB series; give the folder that has labels/{WINDOWS} and data")
        return cases

    def load(self, case: Case) -> ForeignRecording:
        """Read a series."""
        file, labels = case.paths
        samples = read_samples(file, case.key, time="timestamp", value="value")
        return LabelledSeries(
            app=file.parent.name,
            service=file.stem,
            times_ns=samples.times_ns,
            metrics={"value": samples.values},
            step_ns=samples.step_ns,
            anomalies=_read_windows(labels, f"{file.parent.name}/{file.name}", samples),
            training_rows=min(int(PROBATION_SHARE * len(samples.times_ns)), LONGEST_PROBATION),
            inputs=case.paths,
        ).to_recording()


def _read_windows(path: Path, series: str, samples: LabelledSamples) -> list[AnomalyWindow]:
    """Return the windows of a series; each includes its last sample."""
    content = parse_object(read_regular(path, limit_bytes=_LIMIT_BYTES), str(path))
    if series not in content:
        raise DataError(f"{path} must have the windows of {series}, but lacks them; restore the file")
    bounds = content[series]
    windows = [_parse_window(item) for item in bounds] if isinstance(bounds, list) else [None]
    if None in windows:
        raise DataError(
            f"{path} must have windows like ["
            '"2014-02-26 13:45:00", "2014-02-27 06:25:00"] for '
            f"{series}, but has {quoted(str(bounds)[:60])}; restore the file"
        )
    times_ns = samples.times_ns
    after = np.append(times_ns, times_ns[-1] + samples.step_ns)
    anomalies = []
    for start_ns, last_ns in sorted(window for window in windows if window is not None):
        end_ns = int(after[min(np.searchsorted(times_ns, last_ns, side="right"), len(times_ns))])
        anomalies.append(AnomalyWindow(start_ns, max(end_ns, last_ns)))
    return anomalies


def _parse_window(item: Any) -> tuple[int, int] | None:
    if not isinstance(item, list) or len(item) != 2:
        return None
    start_ns, last_ns = (parse_time(text) if isinstance(text, str) else None for text in item)
    return None if start_ns is None or last_ns is None or start_ns > last_ns else (start_ns, last_ns)
