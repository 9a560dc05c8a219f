"""Import labelled series in CSV files: Microsoft cloud monitoring, NAB and TSB-AD."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.documents import parse_object
from faultset.core.errors import DataError
from faultset.core.printable import quoted
from faultset.core.regular_files import read_regular
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import list_missing, list_names, unpack
from faultset.datasets.imports.columns import csv_header
from faultset.datasets.imports.contract import Case, ForeignRecording, ImportFormat
from faultset.datasets.imports.formats.labelled_series import (
    AnomalyWindow,
    LabelledSamples,
    LabelledSeries,
    build_times,
    find_anomalies,
    parse_labels,
    read_numbers,
    read_samples,
    read_table,
)
from faultset.datasets.imports.telemetry.times import parse_time

_COLUMNS = ("TimeStamp", "Value", "Label")
_METADATA = "-metadata.json"
_MAX_HEADERS = 20


class CloudMonitoringImport:
    """A folder with `<domain>/<series>.csv`, whose columns are TimeStamp, Value and Label."""

    name = "cloud-monitoring"
    title = "Microsoft cloud monitoring"
    layout = (("series.csv-metadata.json next to each CSV file", r"\.csv-metadata\.json$"),)
    weakness = (
        "Experts labelled anomalous samples by eye. There is one metric in each series, no cause and no training part. "
        "Times have no zone in some files and count as UTC."
    )

    def recognises(self, path: Path) -> bool:
        names = list_names(path)
        if not list_missing(self.layout, names):
            return True
        files = (path / name for name in names if name.endswith(".csv"))
        return path.is_dir() and any(_is_series(file) for file in islice(files, _MAX_HEADERS))

    def cases(self, path: Path) -> Sequence[Case]:
        root = unpack(path)
        files = [
            file
            for file in sorted(root.rglob("*.csv"))
            if file.with_name(file.name + _METADATA).is_file() or _is_series(file)
        ]
        if not files:
            raise DataError(f"{path} holds no series; give the folder with CSV files of {', '.join(_COLUMNS)}")
        return [Case(key=f"{file.parent.name}/{file.stem}", paths=(file,)) for file in files]

    def load(self, case: Case) -> ForeignRecording:
        (file,) = case.paths
        time, value, label = _COLUMNS
        samples = read_samples(file, case.key, time=time, value=value, label=label)
        return LabelledSeries(
            app=file.parent.name,
            service=file.stem,
            times_ns=samples.times_ns,
            metrics={"value": samples.values},
            step_ns=samples.step_ns,
            anomalies=find_anomalies(samples.labels, samples.times_ns, samples.step_ns),
            inputs=case.paths,
        ).to_recording()


def _is_series(file: Path) -> bool:
    try:
        return {*_COLUMNS} <= {*csv_header(file)}
    except DataError:
        return False


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
        root = unpack(path)
        cases: list[Case] = []
        for labels in sorted(root.rglob(f"labels/{WINDOWS}")):
            files = sorted((labels.parent.parent / "data").glob("*/*.csv"))
            cases += [Case(key=f"{file.parent.name}/{file.stem}", paths=(file, labels)) for file in files]
        if not cases:
            raise DataError(f"{path} holds no NAB series; give the folder that has labels/{WINDOWS} and data")
        return cases

    def load(self, case: Case) -> ForeignRecording:
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


_STEP_S = 60.0
_LABEL = "Label"
_NAME = r"\d+_(.+)_id_(\d+)_(.+)_tr_(\d+)_1st_(\d+)\.csv"


class TSBADImport(ImportFormat):
    """CSV files such as `001_NAB_id_1_Facility_tr_1007_1st_2014.csv`."""

    name = "tsb-ad"
    title = "TSB-AD"
    layout = (("number_dataset_id_number_domain_tr_rows_1st_row.csv", rf"(^|/){_NAME}$"),)
    weakness = "Series have no times; the import counts steps of a minute from 2020. Anomalies have no cause."

    def cases(self, path: Path) -> Sequence[Case]:
        root = unpack(path)
        files = [file for file in sorted(root.rglob("*.csv")) if re.fullmatch(_NAME, file.name)]
        if not files:
            raise DataError(f"{path} holds no TSB-AD series; give the folder with files such as {self.layout[0][0]}")
        return [Case(key=file.stem, paths=(file,)) for file in files]

    def load(self, case: Case) -> ForeignRecording:
        (file,) = case.paths
        match = re.fullmatch(_NAME, file.name)
        assert match is not None  # `cases` returns only such files
        columns = read_table(file)
        metrics = [name for name in columns if name != _LABEL]
        if _LABEL not in columns or not metrics:
            raise DataError(f"{file} must have columns of numbers and the column {_LABEL}; restore the file")
        rows = len(columns[_LABEL])
        times_ns, step_ns = build_times(rows, _STEP_S), round(_STEP_S * SECOND_NS)
        labels = parse_labels(read_numbers(columns, _LABEL, file), rows, f"column {_LABEL} of {file}")
        return LabelledSeries(
            app=match[1],
            service=f"{match[1]}_id_{match[2]}",
            times_ns=times_ns,
            metrics={name: read_numbers(columns, name, file) for name in metrics},
            step_ns=step_ns,
            anomalies=find_anomalies(labels, times_ns, step_ns),
            training_rows=int(match[4]),
            inputs=case.paths,
        ).to_recording()
