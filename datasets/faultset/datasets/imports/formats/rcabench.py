"""Import datapacks of rcabench (OpenRCA 2.0, ops-lite): OpenTelemetry in Parquet, raw or converted."""

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
from faultset.datasets.imports.archives import is_archive, list_names, unpack
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
    find_cases,
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

pc: Any = pyarrow.compute  # type checkers do not see its functions

_APPS = ("ts-", "train-ticket")
_ENTRIES = ("ts-ui-dashboard", "frontend-proxy", "frontend", "front-end", "nginx-web-server")
_LOADS = ("loadgenerator", "load-generator")


def _load(pack: Path, key: str) -> ForeignEpisode:
    windows = windows_of(pack)
    label = label_of(pack, key, windows)
    report_issues(partial(find_issues, pack, windows, label))
    start, end = windows.start_ns, windows.end_ns
    services = tuple(dict.fromkeys([*_list_services(pack), *label["targets"]]))
    return ForeignEpisode(
        app=_guess_app(pack, services),
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
    """Return the input files of a datapack."""
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
        # A trace may cross the border between the windows.
        yield span_rows([read_parquet(path) for path in files], start, end)


def _logs(pack: Path, start: int, end: int) -> Iterator[pa.Table]:
    for path in stage_files(pack, "logs"):
        yield log_rows([read_parquet(path)], start, end)


def _list_services(pack: Path) -> list[str]:
    """Return the sorted services of all files without load generators."""
    names: set[str] = set()
    for kind in KINDS:
        for path in stage_files(pack, kind):
            for column in read_parquet(path, ["service_name", "ServiceName"]).columns:
                names.update(word for word in pc.unique(column.cast(pa.string())).to_pylist() if word)
    return sorted(names - set(_LOADS))


def _guess_app(pack: Path, services: Sequence[str]) -> str:
    if any(name.startswith(_APPS[0]) for name in services):
        return _APPS[1]
    # Names of datapacks begin with the namespace, for instance otel-demo0-checkout-delay-abc.
    return pack.name.split("-")[0] if "-" in pack.name else pack.name


def _interval_s(pack: Path) -> float | None:
    """Return the median time between samples of the most frequent metric, at least a second."""
    for path in stage_files(pack, "metrics"):
        table = read_parquet(path, ["time", "TimeUnix", "metric", "MetricName", "service_name", "ServiceName"])
        clock = clock_of(table.column_names)
        name = next((name for name in ("metric", "MetricName") if name in table.column_names), None)
        if clock is None or name is None or not len(table):
            continue
        times = np.asarray(stamps_ns(table[clock]).to_numpy(), dtype=np.int64)
        codes = table[name].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
        most_frequent = np.bincount(codes).argmax()
        gaps = np.diff(np.unique(times[codes == most_frequent] // SECOND_NS))
        if len(gaps):
            return float(np.max([1, np.median(gaps)]))
    return None


def find_invalid(pack: Path) -> Iterator[DataIssue]:
    """Yield an issue for a datapack that its authors marked invalid."""
    if (pack / INVALID).exists():
        lines = (pack / INVALID).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        problem = f"The datapack is marked invalid: {lines[0] if lines else 'no reason given'}."
        yield DataIssue("warning", case_key(pack), problem, "It is left out.")


def find_issues(pack: Path, windows: DatapackWindows, label: Mapping[str, Any]) -> Iterator[DataIssue]:
    """Yield issues with the windows, the label and the files of a datapack."""
    key = case_key(pack)
    if windows.shift_ns:
        hours = windows.shift_ns / SECOND_NS / 3600
        yield DataIssue(
            "warning", key, f"The windows differ from the telemetry by {hours:+g} h.", "The windows are moved."
        )
    if windows.outside:
        yield DataIssue("note", key, f"{windows.outside} rows are outside the windows.", "They are left out.")
    start = read_json(pack / INJECTION).get("start_time")
    if start is not None and onset_of({"start_time": start}, windows) == windows.onset_ns:
        problem = "The injection begins outside the windows, or exactly at the start of the abnormal window."
        yield DataIssue("note", key, problem, "The onset is the start of the abnormal window.")
    if label["verdict"] == "unknown":
        yield DataIssue(
            "note", key, "No conclusion confirms that clients noticed the fault.", 'The verdict is "unknown".'
        )
    if len(label["targets"]) > 1:
        yield DataIssue("note", key, "The label names several faulty services.", "Each becomes a root cause.")
    for kind in KINDS:
        files = stage_files(pack, kind)
        if len(files) == 1:
            yield DataIssue("warning", key, f"Only one window has {kind}.", "The other window has none.")
        elif not files:
            yield DataIssue("note", key, f"There are no {kind}.", "The episode has none.")
        for file in files:
            if not pq.read_metadata(parquet_path(file)).num_rows:
                yield DataIssue("note", key, f"{file.name} has no rows.", "The episode has none.")


class RCABenchImport:
    """Raw and converted datapacks of rcabench."""

    name = "rcabench"
    title = "rcabench"
    layout = (
        ("env.json or injection.json", r"(^|/)(env|injection)\.json$"),
        ("files such as normal_traces.parquet", r"(^|/)(ab)?normal_(metrics|traces|logs)\.parquet$"),
    )
    weakness = (
        "Every datapack has a fault, and the normal and the abnormal time have separate files, so the layout reveals "
        "the onset. Causal graphs are not imported."
    )

    def recognises(self, path: Path) -> bool:
        """Return whether a path has the Parquet files of a datapack."""
        if is_archive(path):
            return is_datapack({Path(name).name for name in list_names(path)})
        return next(iter(datapacks(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        """Return every datapack that is not marked invalid."""
        root = unpack(path)
        report_issues(lambda: [issue for pack in datapacks(root) for issue in find_invalid(pack)])
        return find_cases(root)

    def load(self, case: Case) -> ForeignEpisode:
        """Read a datapack; the view is the normal and the abnormal window."""
        return _load(case.paths[0], case.key)
