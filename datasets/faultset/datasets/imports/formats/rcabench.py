"""Datapacks of rcabench, also known as OpenRCA 2.0 and ops-lite: OpenTelemetry in Parquet, raw or converted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import is_archive, names_in, unpacked
from faultset.datasets.imports.columns import read_parquet
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, report_issues
from faultset.datasets.imports.formats.rcabench_files import (
    CONCLUSION,
    ENVIRONMENT,
    INJECTION,
    INVALID,
    KINDS,
    DatapackWindows,
    case_key,
    clock_of,
    datapacks,
    found_cases,
    is_datapack,
    label_of,
    onset_of,
    read_json,
    stage_files,
    stamps_ns,
    windows_of,
)
from faultset.datasets.imports.formats.rcabench_rows import (
    METRIC_ROLES,
    histogram_rows,
    log_rows,
    sample_rows,
    span_rows,
)
from faultset.datasets.imports.windows import reference_end

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_APPS = ("ts-", "train-ticket")
_ENTRIES = ("ts-ui-dashboard", "frontend-proxy", "frontend", "front-end", "nginx-web-server")
_LOADS = ("loadgenerator", "load-generator")


def _load(pack: Path, key: str) -> ForeignEpisode:
    """Read a datapack: the normal and the abnormal window together are the view."""
    windows = windows_of(pack)
    label = label_of(pack, key, windows)
    report_issues(partial(pack_issues, pack, windows, label))
    start, end = windows.start_ns, windows.end_ns
    services = tuple(dict.fromkeys([*_services(pack), *label["targets"]]))
    return ForeignEpisode(
        app=_app(pack, services),
        view_start_ns=start,
        view_end_ns=end,
        reference_end_ns=reference_end(start, end, label["inject_start"], origin=str(pack)),
        services=services,
        tables={
            "metrics": partial(_metrics, pack, start, end),
            "spans": partial(_spans, pack, start, end),
            "logs": partial(_logs, pack, start, end),
        },
        source_intervals_s={"metrics": _interval_s(pack)},
        workload_entry=next((name for name in _ENTRIES if name in services), ""),
        metric_roles=METRIC_ROLES,
        label=label,
        inputs=_inputs(pack),
    )


def _inputs(pack: Path) -> tuple[Path, ...]:
    """Return the files of a datapack that are read."""
    others = (pack / name for name in (ENVIRONMENT, INJECTION, CONCLUSION))
    return (
        *(path for kind in KINDS for path in stage_files(pack, kind)),
        *(path for path in others if path.is_file()),
    )


def _metrics(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    for kind in ("metrics", "metrics_sum"):
        files = stage_files(pack, kind)
        if files:
            yield sample_rows([read_parquet(path) for path in files], start, end, sums=kind == "metrics_sum")
    files = stage_files(pack, "metrics_histogram")
    if files:
        yield from histogram_rows([read_parquet(path) for path in files], start, end)


def _spans(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    files = stage_files(pack, "traces")
    if files:
        # Both windows at once: a trace may cross from one to the other.
        yield span_rows([read_parquet(path) for path in files], start, end)


def _logs(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    for path in stage_files(pack, "logs"):
        yield log_rows([read_parquet(path)], start, end)


def _services(pack: Path) -> list[str]:
    """Return the services that any file names, sorted; those that make the load are no candidates."""
    found: set[str] = set()
    for kind in KINDS:
        for path in stage_files(pack, kind):
            for column in read_parquet(path, ["service_name", "ServiceName"]).columns:
                found.update(word for word in pc.unique(column.cast(pa.string())).to_pylist() if word)
    return sorted(found - set(_LOADS))


def _app(pack: Path, services: Sequence[str]) -> str:
    if any(name.startswith(_APPS[0]) for name in services):
        return _APPS[1]
    # Datapacks are called after their namespace: otel-demo0-checkout-delay-abc.
    return pack.name.split("-")[0] if "-" in pack.name else pack.name


def _interval_s(pack: Path) -> float | None:
    """Return the usual time between two samples of one series, to the second."""
    for path in stage_files(pack, "metrics"):
        table = read_parquet(path, ["time", "TimeUnix", "metric", "MetricName", "service_name", "ServiceName"])
        clock = clock_of(table.column_names)
        name = next((name for name in ("metric", "MetricName") if name in table.column_names), None)
        if clock is None or name is None or not len(table):
            continue
        times = np.asarray(stamps_ns(table[clock]).to_numpy(), dtype=np.int64)
        codes = table[name].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        best = np.bincount(codes).argmax()
        gaps = np.diff(np.unique(times[codes == best] // SECOND_NS))
        if len(gaps):
            return float(np.max([1, np.median(gaps)]))
    return None


def invalid_issues(pack: Path) -> Iterator[DataIssue]:
    """Report a datapack that its makers marked invalid."""
    if (pack / INVALID).exists():
        lines = (pack / INVALID).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        yield DataIssue(
            severity="warning",
            place=case_key(pack),
            found=f"It is marked invalid: {lines[0] if lines else 'no reason given'}.",
            handling="It is left out.",
        )


def pack_issues(pack: Path, windows: DatapackWindows, label: Mapping[str, Any]) -> Iterator[DataIssue]:
    """Look at the windows, the label and the files of a datapack."""

    def issue(severity: str, found: str, handling: str) -> DataIssue:
        return DataIssue(severity=severity, place=case_key(pack), found=found, handling=handling)  # type: ignore[arg-type]

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
        if is_archive(path):
            return is_datapack({Path(name).name for name in names_in(path)})
        return next(iter(datapacks(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every datapack that is not marked invalid."""
        root = unpacked(path)
        report_issues(lambda: [issue for pack in datapacks(root) for issue in invalid_issues(pack)])
        return found_cases(root)

    def load(self, case: Case) -> ForeignEpisode:
        """Read a datapack: the normal and the abnormal window together are the view."""
        return _load(case.paths[0], case.key)
