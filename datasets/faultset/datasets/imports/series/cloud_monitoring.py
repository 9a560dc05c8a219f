"""Import Microsoft's cloud monitoring dataset: one metric per file, labelled by sample."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from faultset.core.errors import DataError
from faultset.datasets.imports.archives import list_missing, list_names, unpack
from faultset.datasets.imports.columns import csv_header
from faultset.datasets.imports.contract import Case, ForeignRecording
from faultset.datasets.imports.series.labelled_series import LabelledSeries, find_anomalies
from faultset.datasets.imports.series.sample_files import read_samples

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
        """Return whether a path has metadata of CSV files, or CSV files with the columns of a series."""
        names = list_names(path)
        if not list_missing(self.layout, names):
            return True
        files = (path / name for name in names if name.endswith(".csv"))
        return path.is_dir() and any(_is_series(file) for file in islice(files, _MAX_HEADERS))

    def cases(self, path: Path) -> Sequence[Case]:
        """Return every CSV file with metadata or with the columns of a series."""
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
        """Read a series."""
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
