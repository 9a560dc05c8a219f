"""Datapacks of rcabench, also known as OpenRCA 2.0 and ops-lite: OpenTelemetry in Parquet, raw or converted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from faultset.datasets.imports.archives import is_archive, names_in, unpacked
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode


class RCABenchImport:
    """Datapacks of rcabench, in the raw stage and in the converted one."""

    name = "rcabench"
    title = "rcabench"
    layout = (
        ("env.json or injection.json", r"(^|/)(env|injection)\.json$"),
        ("files such as normal_traces.parquet", r"(^|/)(ab)?normal_(metrics|traces|logs)\.parquet$"),
    )
    weakness = (
        "Every datapack is a fault, and files of the normal and of the abnormal time are apart: the layout tells the "
        "onset. Causal graphs are not carried over."
    )

    def recognises(self, path: Path) -> bool:
        """Say whether there is a folder with the Parquet files of a datapack."""
        from faultset.datasets.imports.rcabench.discovery import datapacks, is_datapack

        if is_archive(path):
            return is_datapack({Path(name).name for name in names_in(path)})
        return next(iter(datapacks(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every datapack that is not marked invalid."""
        from faultset.datasets.imports.rcabench.discovery import found_cases

        return found_cases(unpacked(path))

    def load(self, case: Case) -> ForeignEpisode:
        """Read a datapack: the normal and the abnormal window together are the view."""
        from faultset.datasets.imports.rcabench.reader import loaded

        return loaded(case.paths[0], case.key)

    def data_issues(self, path: Path, cases: Sequence[Case]) -> Sequence[DataIssue]:
        """Look at every datapack's windows, labels and files."""
        from faultset.datasets.imports.rcabench.quality import data_issues

        return data_issues(unpacked(path))
