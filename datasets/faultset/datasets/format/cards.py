"""Write the dataset card: a README with front matter for Hugging Face."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.core.files import replace_text
from faultset.core.printable import list_counts
from faultset.datasets.format.base_rates import build_base_rate_table
from faultset.datasets.format.card_cells import cell as _cell
from faultset.datasets.format.labels import Label
from faultset.datasets.format.recording_cards import recording_sections
from faultset.datasets.format.recording_summaries import RecordingSummary
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
    titles = {episode: _cell(app) for episode, app in apps.items()}
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
    episodes, splits = (_episodes(labels, apps), _splits(version_file)) if has_episodes else ("", "")
    folder = "episodes/<id>" if has_episodes else "recordings/<id>/chunks/<number>"
    compacted = _sampling(version_file.provenance.get("compacted_from"))
    content = list_counts(episode=len(labels), recording=len(version_file.recordings))
    return f"""---
pretty_name: {json.dumps(name)}
tags:
- time-series
- microservices
- anomaly-detection
- root-cause-analysis
configs:
{_configs(added, version_file)}
---

# {name}

Labelled telemetry of microservices, with and without faults: {content},
version {version_file.version}, schema version {version_file.schema_version}.

{notice}{recordings}{episodes}\
A verdict is *manifest* if clients noticed the fault, *latent* if only the target's metrics changed, *silent* if nothing
changed, and *none* without a fault.

## Tables

| table | rows | MB |
|---|---|---|
{_table_rows(version_file, (*TABLES, *added, *truth))}

`{folder}/telemetry/` is the input of methods, `{folder}/truth/` the ground truth. Times are UTC nanoseconds,
windows are half-open.

{compacted}{"".join(_dictionary(table) for table in added_tables)}{splits}\
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
{_provenance(version_file)}
```

{KEEP_MARK}
"""


def _episodes(labels: Mapping[str, Label], apps: Mapping[str, str]) -> str:
    return f"""## Episodes

| app | fault | verdict | episodes |
|---|---|---|---|
{_episode_rows(labels, apps)}

"""


def _splits(version_file: VersionFile) -> str:
    return f"""## Splits

| split | separated by | train | test |
|---|---|---|---|
{_split_rows(version_file)}

"""


def _episode_rows(labels: Mapping[str, Label], apps: Mapping[str, str]) -> str:
    counts = Counter((apps[episode], label.fault or "none", label.verdict) for episode, label in labels.items())
    return "\n".join(
        f"| {_cell(app)} | {_cell(fault)} | {verdict} | {count} |"
        for (app, fault, verdict), count in sorted(counts.items())
    )


def _table_rows(version_file: VersionFile, tables: Iterable[str]) -> str:
    rows, sizes = Counter[str](), Counter[str]()
    for files in (*version_file.episodes.values(), *version_file.recordings.values()):
        for path, record in files.items():
            if record.rows is not None:
                rows[Path(path).stem] += record.rows
                sizes[Path(path).stem] += record.bytes
    return "\n".join(f"| {table} | {rows[table]:,} | {sizes[table] / 1e6:.2f} |" for table in tables)


def _split_rows(version_file: VersionFile) -> str:
    return "\n".join(
        f"| {_cell(name)} | {_cell(split.key)} | {len(split.train)} | {len(split.test)} |"
        for name, split in version_file.splits.items()
    )


def _sampling(source: Any) -> str:
    """Describe the sampling of traces by a compaction; empty if it kept all."""
    share = source.get("traces") if isinstance(source, Mapping) else None
    if not isinstance(share, int | float) or not share < 1:
        return ""
    mark = source.get("ids_of_left_out_traces_begin_with")
    note = f" Trace ids without spans begin with {_cell(mark)}." if isinstance(mark, str) else ""
    return (
        f"**The traces are a sample**: {share:.0%} of the traces were kept, chosen by their ids, and all log lines."
        f"{note}\n\n"
    )


def _dictionary(table: AddedTable) -> str:
    """Describe the columns of an added table."""
    columns = "\n".join(
        f"| {column.name} | {column.type} | {_cell(column.unit)} | {'yes' if column.nullable else 'no'} "
        f"| {_cell(column.meaning)} |"
        for column in table.columns
    )
    return f"""### {table.name}

{_cell(table.meaning)} Recorded by the source {_cell(table.source)}.

| column | type | unit | null | meaning |
|---|---|---|---|---|
| time | timestamp |  | no | when the row was recorded |
{columns}

"""


def _provenance(version_file: VersionFile) -> str:
    # HTML tags in the provenance must not act as markup where the card is shown
    return json.dumps(version_file.provenance, indent=2, sort_keys=True).replace("<", "\\u003c")


def _configs(added: Sequence[str], version_file: VersionFile) -> str:
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
