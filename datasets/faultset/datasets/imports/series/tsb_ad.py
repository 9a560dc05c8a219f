"""Import the layout of TSB-AD: a CSV file for each series, whose name contains the length of the training part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.contract import Case, ForeignRecording, ImportFormat
from faultset.datasets.imports.series.labelled_series import (
    LabelledSeries,
    build_times,
    find_anomalies,
)
from faultset.datasets.imports.series.sample_files import parse_labels, read_numbers, read_table

STEP_S = 60.0
LABEL = "Label"
_NAME = r"\d+_(.+)_id_(\d+)_(.+)_tr_(\d+)_1st_(\d+)\.csv"


class TSBADImport(ImportFormat):
    """CSV files such as `001_NAB_id_1_Facility_tr_1007_1st_2014.csv`."""

    name = "tsb-ad"
    title = "TSB-AD"
    layout = (("number_dataset_id_number_domain_tr_rows_1st_row.csv", rf"(^|/){_NAME}$"),)
    weakness = "Series have no times; the import counts steps of a minute from 2020. Anomalies have no cause."

    def cases(self, path: Path) -> Sequence[Case]:
        """Return every file whose name follows TSB-AD's scheme."""
        root = unpack(path)
        files = [file for file in sorted(root.rglob("*.csv")) if re.fullmatch(_NAME, file.name)]
        if not files:
            raise DataError(f"{path} holds no TSB-AD series; give the folder with files such as {self.layout[0][0]}")
        return [Case(key=file.stem, paths=(file,)) for file in files]

    def load(self, case: Case) -> ForeignRecording:
        """Read the series of a file."""
        (file,) = case.paths
        match = re.fullmatch(_NAME, file.name)
        assert match is not None  # `cases` returns only such files
        columns = read_table(file)
        metrics = [name for name in columns if name != LABEL]
        if LABEL not in columns or not metrics:
            raise DataError(f"{file} must have columns of numbers and the column {LABEL}; restore the file")
        rows = len(columns[LABEL])
        times_ns, step_ns = build_times(rows, STEP_S), round(STEP_S * SECOND_NS)
        labels = parse_labels(read_numbers(columns, LABEL, file), rows, f"column {LABEL} of {file}")
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
