"""An importer: folders with `metrics.csv` (time in seconds, then `service/metric` columns) and `fault.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from faultset.core.errors import DataError
from faultset.datasets.imports.columns import long_metrics
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, reference_end, report_issues

SECOND_NS = 1_000_000_000


class LabNotes:
    """One folder for each experiment."""

    name = "lab-notes"
    title = "Lab notes"
    weakness = "metrics only"
    layout = (("metrics.csv", r"(^|/)metrics\.csv$"), ("fault.json", r"(^|/)fault\.json$"))

    def recognises(self, path: Path) -> bool:
        """Return whether there is an experiment below a folder."""
        return path.is_dir() and any(path.glob("*/fault.json"))

    def cases(self, path: Path) -> Sequence[Case]:
        """Return all experiments, sorted by name."""
        folders = sorted(file.parent for file in path.glob("*/fault.json"))
        if not folders:
            raise DataError(f"{path} holds no experiment; give the folder above those with a fault.json")
        return [Case(key=folder.name, paths=(folder,)) for folder in folders]

    def load(self, case: Case) -> ForeignEpisode:
        """Read one experiment."""
        metrics_file, fault_file = case.paths[0] / "metrics.csv", case.paths[0] / "fault.json"
        try:
            frame = pd.read_csv(metrics_file, index_col="time", dtype=float)
            fault = json.loads(fault_file.read_text(encoding="utf-8"))
            target, onset_ns = str(fault["service"]), int(fault["began_s"]) * SECOND_NS
            name = str(fault["name"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{case.paths[0]} is not an experiment ({error}); restore its two files") from error
        pairs = [column.partition("/") for column in frame.columns]
        services = tuple(sorted({service for service, slash, _ in pairs if slash}))
        if target not in services or not frame.index.is_monotonic_increasing or frame.index.hasnans:
            raise DataError(f"{metrics_file} has no metrics of {target}, or times out of order; restore the file")
        times_ns = (frame.index.to_numpy() * SECOND_NS).astype("int64")
        start, end = int(times_ns[0]), int(times_ns[-1]) + SECOND_NS
        columns = [
            (service, metric, frame.iloc[:, position].to_numpy()) for position, (service, _, metric) in enumerate(pairs)
        ]
        if end - start < 120 * SECOND_NS:
            issue = DataIssue(
                severity="warning",
                location=case.key,
                problem="It is shorter than two minutes.",
                handling="It is imported unchanged.",
            )
            report_issues(lambda: [issue])
        return ForeignEpisode(
            app="lab",
            view_start_ns=start,
            view_end_ns=end,
            reference_end_ns=reference_end(start, end, onset_ns, origin=case.key),
            services=services,
            tables={"metrics": lambda: [long_metrics(times_ns, columns)]},
            label={
                "fault": name,
                "targets": [target],
                "root_causes": [{"kind": "Service", "name": target, "service": target, "accepted": [target]}],
                "inject_start": onset_ns,
            },
            source_intervals_s={"metrics": 1.0},
            metric_roles=(
                {
                    "source": self.name,
                    "metric": "cpu",
                    "role": "cpu",
                    "unit": "s/s",
                    "kind": "gauge",
                    "combine": "mean",
                    "meaning": "cores in use",
                },
            ),
        )
