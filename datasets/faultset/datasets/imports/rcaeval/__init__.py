"""RCAEval: 735 cases of three applications (Pham et al., WWW 2025), in any of its three layouts.

Z is the original on Zenodo, F the flat one on Figshare, H the Parquet one on Hugging Face.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from faultset.datasets.imports.archives import is_archive, names_in, unpacked
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode


class RCAEvalImport:
    """Cases of RCAEval, layouts Z, F and H, suites RE1 to RE3."""

    name = "rcaeval"
    title = "RCAEval"
    layout = (
        ("a folder such as cartservice_cpu/1", r"(^|/)([^_/]+_[^_/]+/\d+|([^_/]+_){3}\d+)(/|$)"),
        (
            "a file with metrics (simple_metrics.csv, data.csv)",
            r"(^|/)(metrics\.(parquet|json|csv)|simple_(metrics|data)\.csv|data\.csv)$",
        ),
    )
    weakness = (
        "Every case is a fault, and its onset lies in the middle of the recording: the layout tells that there is a "
        "fault and when it begins. Detection scores mean little. There is no record that a fault took effect, and "
        "none of its end."
    )

    def recognises(self, path: Path) -> bool:
        """Say whether there is a case with its service and fault in the name of its folder."""
        from faultset.datasets.imports.rcaeval.discovery import case_folders, is_case_file

        if is_archive(path):
            return any(is_case_file(Path(name)) for name in names_in(path))
        return next(iter(case_folders(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every folder with metrics whose name gives service and fault."""
        from faultset.datasets.imports.rcaeval.discovery import found_cases

        return found_cases(unpacked(path))

    def load(self, case: Case) -> ForeignEpisode:
        """Read a case: the whole recording is the view."""
        from faultset.datasets.imports.rcaeval.reader import loaded

        return loaded(case)

    def data_issues(self, path: Path, cases: Sequence[Case]) -> Sequence[DataIssue]:
        """Look at every case's files: units, headers, what is missing."""
        from faultset.datasets.imports.rcaeval.quality import data_issues

        return data_issues(cases)
