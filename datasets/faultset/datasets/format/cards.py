"""Write the dataset card, a README with front matter for Hugging Face, and measure the base rates that it shows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict

from faultset.core.documents import STRICT, check_type
from faultset.core.files import parquet_path, replace_text
from faultset.core.printable import list_counts, printable
from faultset.core.times import SECOND_NS
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.incidents import RecordingSummary, read_truth_rows
from faultset.datasets.format.labels import Label
from faultset.datasets.format.recordings import RECORDINGS, Interval, Stretch, subtract_intervals
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES, TABLES, TRUTH_TABLES, AddedTable
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.version_files import VersionFile

CARD = "README.md"
"""File name of the card."""
KEEP_MARK = "<!-- Text below this line is kept when the card is written again. -->"


def write_card(
    root: Path,
    version_file: VersionFile,
    labels: Mapping[str, Label],
    apps: Mapping[str, str],
    *,
    added_tables: Sequence[AddedTable] = (),
    recordings: Mapping[str, RecordingSummary] | None = None,
) -> None:
    """Write `README.md` for a version; text below the keep mark of an older card is kept."""
    path = root / CARD
    user_text = ""
    if path.exists():
        user_text = path.read_text(encoding="utf-8").partition(KEEP_MARK)[2].lstrip("\n")
    titles = {episode: cell(app) for episode, app in apps.items()}
    rates = build_base_rate_table(root, labels, titles, recordings)
    card = card_text(
        root.resolve().name,
        version_file,
        labels,
        apps,
        added_tables=added_tables,
        base_rates=rates,
        recordings=recording_sections(version_file, recordings or {}),
    )
    with translate_disk_full(root):
        replace_text(path, card + user_text)


def card_text(
    name: str,
    version_file: VersionFile,
    labels: Mapping[str, Label],
    apps: Mapping[str, str],
    *,
    added_tables: Sequence[AddedTable] = (),
    base_rates: str = "",
    recordings: str = "",
) -> str:
    """Return the card of a version up to and including the keep mark."""
    added = [table.name for table in added_tables]
    synthetic = version_file.provenance.get("synthetic")
    notice = "**The data is synthetic**: generated without running services.\n\n" if synthetic else ""
    truth = [*(TRUTH_TABLES if labels else ()), *(CHUNK_TRUTH_TABLES if version_file.recordings else ())]
    has_episodes = bool(labels) or not version_file.recordings
    episodes = splits = ""
    if has_episodes:
        counts = Counter((apps[episode], label.fault or "none", label.verdict) for episode, label in labels.items())
        table = _table(["app", "fault", "verdict", "episodes"], _count_rows(counts))
        episodes = f"## Episodes\n\n{table}\n\n"
        rows = [
            (cell(name), cell(split.key), len(split.train), len(split.test))
            for name, split in version_file.splits.items()
        ]
        splits = f"## Splits\n\n{_table(['split', 'separated by', 'train', 'test'], rows)}\n\n"
    folder = "episodes/<id>" if has_episodes else "recordings/<id>/chunks/<number>"
    compacted = _sampling_note(version_file.provenance.get("compacted_from"))
    content = list_counts(episode=len(labels), recording=len(version_file.recordings))
    return f"""---
pretty_name: {json.dumps(name)}
tags:
- time-series
- microservices
- anomaly-detection
- root-cause-analysis
configs:
{_config_entries(added, version_file)}
---

# {name}

Labelled telemetry of microservices, with and without faults: {content},
version {version_file.version}, schema version {version_file.schema_version}.

{notice}{recordings}{episodes}\
A verdict is *manifest* if clients noticed the fault, *latent* if only the target's metrics changed, *silent* if nothing
changed, and *none* without a fault.

## Tables

{_table(["table", "rows", "MB"], _list_sizes(version_file, (*TABLES, *added, *truth)))}

`{folder}/telemetry/` is the input of methods, `{folder}/truth/` the ground truth. Times are UTC nanoseconds,
windows are half-open.

{compacted}{"".join(_added_table_section(table) for table in added_tables)}{splits}\
`versions/{version_file.version}.json` lists all files with their SHA-256.

## Reading

```python
import pandas as pd
metrics = pd.read_parquet("{folder}/telemetry/metrics.parquet")

from datasets import load_dataset
logs = load_dataset("<this folder>", "logs", split="train")
```

{base_rates}## Provenance

```json
{_provenance_json(version_file)}
```

{KEEP_MARK}
"""


def _table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    lines = (f"| {' | '.join(map(str, row))} |" for row in (columns, *rows))
    return "\n".join([next(lines), "|" + "---|" * len(columns), "\n".join(lines)])


def _count_rows(counts: Mapping[tuple[str, str, str], int]) -> Iterator[tuple[object, ...]]:
    for (app, fault, verdict), count in sorted(counts.items()):
        yield cell(app), cell(fault), verdict, count


def _list_sizes(version_file: VersionFile, tables: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rows, sizes = Counter[str](), Counter[str]()
    for path, record in version_file.paths().items():
        if record.rows is not None:
            rows[Path(path).stem] += record.rows
            sizes[Path(path).stem] += record.bytes
    return ((table, f"{rows[table]:,}", f"{sizes[table] / 1e6:.2f}") for table in tables)


def _sampling_note(source: Any) -> str:
    """Describe the sampling of traces by a compaction; empty if it kept all."""
    share = source.get("traces") if isinstance(source, Mapping) else None
    if not isinstance(share, int | float) or not share < 1:
        return ""
    mark = source.get("ids_of_left_out_traces_begin_with")
    note = f" Trace ids without spans begin with {cell(mark)}." if isinstance(mark, str) else ""
    return (
        f"**The traces are a sample**: {share:.0%} of the traces were kept, chosen by their ids, and all log lines."
        f"{note}\n\n"
    )


def _added_table_section(table: AddedTable) -> str:
    rows = [
        (column.name, column.type, cell(column.unit), "yes" if column.nullable else "no", cell(column.meaning))
        for column in table.columns
    ]
    time = ("time", "timestamp", "", "no", "when the row was recorded")
    return f"""### {table.name}

{cell(table.meaning)} Recorded by the source {cell(table.source)}.

{_table(["column", "type", "unit", "null", "meaning"], [time, *rows])}

"""


def _provenance_json(version_file: VersionFile) -> str:
    # HTML tags in the provenance must not act as markup where the card is shown
    return json.dumps(version_file.provenance, indent=2, sort_keys=True).replace("<", "\\u003c")


def _config_entries(added: Sequence[str], version_file: VersionFile) -> str:
    folders = []
    if version_file.episodes:
        folders += [("", "episodes/*/telemetry", [*TABLES, *added]), ("", "episodes/*/truth", [*TRUTH_TABLES])]
    if version_file.recordings:
        chunks, prefix = "recordings/*/chunks/*", "recording_" if version_file.episodes else ""
        folders += [(prefix, f"{chunks}/telemetry", [*TABLES]), (prefix, f"{chunks}/truth", [*CHUNK_TRUTH_TABLES])]
    return "\n".join(
        f"- config_name: {prefix}{table}\n  data_files: {folder}/{table}.parquet"
        for prefix, folder, tables in folders
        for table in tables
    )


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return escape(printable(text)).replace("|", "&#124;").replace("`", "&#96;")


JUDGED_FROM, FALSE_ALARMS = "judged_from", "false_alarms"
"""Entry of the provenance of judged datasets, and its list of false alarms."""


@dataclass(frozen=True, kw_only=True)
class FalseAlarms:
    """False alarms of the tests behind the verdicts, in healthy windows of recordings with the same settings."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    app: str
    """Name of the application."""
    platform: str
    """Name of the platform."""
    load: str
    """Name of the load."""
    step_s: float
    """Interval of metrics in seconds."""
    recordings: int
    """Number of recordings."""
    windows: int
    """Number of healthy windows."""
    client_alarms: int
    """Number of healthy windows in which the test of client requests fires."""
    client_interval: tuple[float, float] | None
    """95 % interval of the share of windows in which the client test fires; None if `windows` is 0."""
    service_windows: int
    """Number of scores that the limit of the latent test is based on: one for each service in each healthy window."""
    limit: float | None
    """Limit of the latent test; None if there are too few scores."""
    tested: int
    """Number of scores that were compared with the limit of the other recordings."""
    latent_alarms: int
    """Number of scores above the limit of the other recordings."""
    latent_interval: tuple[float, float] | None
    """95 % interval of the share of these scores; None if none was compared."""

    @property
    def client_alarms_text(self) -> str:
        """Share of the windows in which the test of client requests fires."""
        return _format_share(self.client_alarms, self.windows, self.client_interval)

    @property
    def latent_alarms_text(self) -> str:
        """Share of the scores above the limit of the other recordings."""
        return _format_share(self.latent_alarms, self.tested, self.latent_interval)

    @property
    def limit_text(self) -> str:
        """The limit and the number of scores behind it."""
        limit = "none" if self.limit is None else f"{self.limit:.2f}"
        return f"{limit}, from {self.service_windows} service windows"


def _format_share(count: int, total: int, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return f"{count} of {total}"
    low, high = interval
    return f"{count} of {total} ({count / total:.2%} [{100 * low:.2f}, {100 * high:.2f}])"


def read_false_alarms(provenance: Mapping[str, Any]) -> list[FalseAlarms]:
    """Return the false alarms that the provenance of a version names; raise DataError if they are damaged."""
    source = provenance.get(JUDGED_FROM)
    if not isinstance(source, Mapping) or FALSE_ALARMS not in source:
        return []
    origin = f"provenance.{JUDGED_FROM}.{FALSE_ALARMS} of the version"
    return check_type(source[FALSE_ALARMS], list[FalseAlarms], origin)


def recording_sections(version_file: VersionFile, recordings: Mapping[str, RecordingSummary]) -> str:
    """Return the sections about recordings; empty if there are none."""
    if not recordings:
        return ""
    rows = [
        (
            recording,
            cell(summary.context.app_title),
            f"{summary.duration_s / 3600:.2f}",
            len(summary.chunks),
            summary.chunks[-1].segment,
            len(summary.incidents),
            f"{summary.context.sampling_step_s:g}",
            cell(str(summary.context.sampling)),
        )
        for recording, summary in sorted(recordings.items())
    ]
    columns = ["recording", "app", "hours", "chunks", "segments", "incidents", "metric interval, s", "sampling"]
    counts = Counter(
        (summary.context.app_title, incident.fault or "", incident.verdict)
        for summary in recordings.values()
        for incident in summary.incidents
    )
    splits = [
        (cell(name), cell(split.key), *map(_format_hours, (split.train, split.validation, split.test)))
        for name, split in version_file.recording_splits.items()
    ]
    return f"""## Recordings

{_table(columns, rows)}

{_table(["app", "fault", "verdict", "incidents"], _count_rows(counts))}

{_table(["split of the recordings", "separated by", "train, h", "validation, h", "test, h"], splits)}

{_judged_section(version_file)}`recordings/<id>/chunks/<number>/` has folders `telemetry/` and `truth/` like an episode.

"""


def _judged_section(version_file: VersionFile) -> str:
    """Describe verdicts that were judged after the recording; empty if none was."""
    alarms = read_false_alarms(version_file.provenance)
    if not alarms:
        return ""
    rows = [
        (cell(row.app), row.recordings, row.client_alarms_text, cell(row.limit_text), row.latent_alarms_text)
        for row in alarms
    ]
    columns = ["app", "recordings", "false alarms of the client test", "limit for the median window length"]
    return f"""## Verdicts judged after the recording

An incident that clients did not notice is latent if its target's score exceeds the limit that 1 % of the services
exceed in healthy windows of the same length, in the recordings with equal settings. It stays unknown if it overlaps
another incident or void time, if a decoy replaced the target's pods, or if there are too few healthy windows.

{_table([*columns, "false alarms of the latent test"], rows)}

False alarms are counted in healthy windows, with 95 % intervals. For the latent test, the limit comes from the
other recordings.

"""


def _format_hours(stretches: Sequence[Stretch]) -> str:
    return f"{sum(stretch.length_s for stretch in stretches) / 3600:.2f}"


MIN_HEALTHY_S = 60
"""Chunks of recordings with less healthy time are left out."""
_BAD_LEVELS = ("warning", "error", "fatal")
_RATE_TITLES = (
    "error spans per 1,000",
    "warning and error lines per minute",
    "Warning events per hour",
    "failed client requests",
)


class BaseRates(NamedTuple):
    """Rates of errors in the healthy reference of an episode, or in the healthy time of a chunk of a recording.

    `_RATE_TITLES` has their units. Unfinished requests do not count as failed.
    """

    error_spans: float
    bad_lines: float
    warning_events: float
    failed_requests: float


def measure_base_rates(root: Path, label: Label) -> BaseRates:
    """Measure the rates of errors in the reference of an episode; a missing table counts as having no errors."""
    folder = root / EPISODES / label.episode / "telemetry"
    return _measure_healthy_time(folder, [(label.view_start_ns, label.reference_end_ns)])


def measure_recording(path: Path, summary: RecordingSummary) -> Iterator[BaseRates]:
    """Yield the rates of errors in each chunk of a recording, without incidents and void stretches."""
    end_ns = summary.chunks[-1].end_ns
    busy = [
        (min(incident.start_ns, incident.inject_start_ns or incident.start_ns), incident.end_ns or end_ns)
        for incident in summary.incidents
    ]
    busy += [(row["start"], row["end"]) for row in read_truth_rows(path, summary.chunks, "voids")]
    for chunk in summary.chunks:
        healthy = subtract_intervals([(chunk.start_ns, chunk.end_ns)], busy)
        if sum(end - start for start, end in healthy) >= MIN_HEALTHY_S * SECOND_NS:
            yield _measure_healthy_time(path / chunk.folder / "telemetry", healthy)


def _measure_healthy_time(folder: Path, healthy: Sequence[Interval]) -> BaseRates:
    hours = sum(end - start for start, end in healthy) / (3600 * SECOND_NS)

    def read(table: str, column: str, time: str = "time") -> list[str]:
        path = folder / f"{table}.parquet"
        if not path.exists():
            return []
        rows = pq.read_table(parquet_path(path), columns=[time, column])
        times = rows[time].cast(pa.int64()).to_numpy()
        inside = np.any([(times >= start) & (times < end) for start, end in healthy], axis=0)
        return [str(value).lower() for value in rows[column].filter(pa.array(inside)).to_pylist()]

    spans, outcomes = read("spans", "status"), read("requests", "outcome", "scheduled")
    levels, types = read("logs", "level"), read("events", "type")
    return BaseRates(
        error_spans=1000 * spans.count("error") / max(1, len(spans)),
        bad_lines=sum(level in _BAD_LEVELS for level in levels) / (60 * hours),
        warning_events=types.count("warning") / hours,
        failed_requests=100 * sum(outcome not in ("ok", "unfinished") for outcome in outcomes) / max(1, len(outcomes)),
    )


def build_base_rate_table(
    root: Path,
    labels: Mapping[str, Label],
    apps: Mapping[str, str],
    recordings: Mapping[str, RecordingSummary] | None = None,
) -> str:
    """Return the base rates of every application as a section of the dataset's card."""
    rates: dict[str, list[BaseRates]] = defaultdict(list)
    for recording, summary in (recordings or {}).items():
        rates[cell(summary.context.app_title)] += measure_recording(root / RECORDINGS / recording, summary)
    for episode, label in labels.items():
        rates[apps[episode]].append(measure_base_rates(root, label))
    if not any(rates.values()):
        return ""
    rows = [
        (app, *map(_format_rates, _RATE_TITLES, zip(*measured, strict=True)))
        for app, measured in sorted(rates.items())
        if measured
    ]
    units = " and ".join(["healthy references"] * bool(labels) + ["healthy time of chunks"] * bool(recordings))
    return f"""## Errors of healthy systems

Medians of the {units}, with the 5 % and 95 % quantiles.

{_table(["app", *_RATE_TITLES], rows)}

"""


def _format_rates(title: str, values: Iterable[float]) -> str:
    low, middle, high = np.quantile(list(values), (0.05, 0.5, 0.95))
    unit = " %" if title == "failed client requests" else ""
    return f"{middle:.1f}{unit} ({low:.1f} to {high:.1f})"
