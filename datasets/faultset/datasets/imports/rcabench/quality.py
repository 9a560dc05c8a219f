"""Data issues of datapacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.contract import DataIssue
from faultset.datasets.imports.rcabench.discovery import (
    INJECTION,
    INVALID,
    KINDS,
    case_key,
    datapacks,
    read_json,
    stage_files,
    windows_of,
)
from faultset.datasets.imports.rcabench.labels import label_of, onset_of


def data_issues(path: Path) -> Sequence[DataIssue]:
    """Look at all datapacks below a path, those that are marked invalid too."""
    return [issue for pack in datapacks(path) for issue in _of_pack(pack)]


def _of_pack(pack: Path) -> Iterator[DataIssue]:
    def issue(severity: str, found: str, handling: str) -> DataIssue:
        return DataIssue(severity=severity, place=case_key(pack), found=found, handling=handling)  # type: ignore[arg-type]

    if (pack / INVALID).exists():
        reason = (pack / INVALID).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        yield issue(
            "warning", f"It is marked invalid: {reason[0] if reason else 'no reason given'}.", "It is left out."
        )
        return
    try:
        windows = windows_of(pack)
        label = label_of(pack, pack.name, windows)
    except DataError as error:
        yield issue("error", str(error), "The datapack cannot be imported.")
        return
    if windows.shift_ns:
        hours = windows.shift_ns / SECOND_NS / 3600
        yield issue("warning", f"Its windows are {hours:+g} h away from its telemetry.", "The windows are moved.")
    if windows.outside:
        yield issue("note", f"{windows.outside} rows lie outside its windows.", "They are left out.")
    said = read_json(pack / INJECTION).get("start_time")
    if said is not None and onset_of({"start_time": said}, windows) == windows.onset_ns:
        yield issue("note", "The injection does not begin inside the windows, or exactly with the abnormal one.", (
            "The beginning of the abnormal window is the onset."
        ))  # fmt: skip
    if label["verdict"] == "unknown":
        yield issue("note", "No conclusion says that clients felt the fault.", 'The verdict is "unknown".')
    if len(label["targets"]) > 1:
        yield issue("note", "It names more than one service at fault.", "Each is a root cause of its own.")
    for kind in KINDS:
        files = stage_files(pack, kind)
        if len(files) == 1:
            yield issue("warning", f"There are {kind} of one window only.", "The other window has none.")
        elif not files:
            yield issue("note", f"There are no {kind}.", "Nothing takes their place.")
        for file in files:
            if not pq.read_metadata(parquet_path(file)).num_rows:
                yield issue("note", f"{file.name} has no rows.", "Nothing takes their place.")
