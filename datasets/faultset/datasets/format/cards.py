"""The dataset card: a README for people, with front matter that Hugging Face reads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from faultset.core.files import replace_text
from faultset.core.printable import printable
from faultset.datasets.format.base_rates import base_rate_table
from faultset.datasets.format.labels import Label
from faultset.datasets.format.manifests import Manifest
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, AddedTable
from faultset.datasets.format.storage import translate_disk_full

CARD = "README.md"
"""Name of the card's file."""
KEEP_MARK = "<!-- Text below this line is kept when the card is written again. -->"


def write_card(
    root: Path,
    manifest: Manifest,
    labels: Mapping[str, Label],
    apps: Mapping[str, str],
    *,
    added_tables: Sequence[AddedTable] = (),
) -> None:
    """Write `README.md` for a version; what stands below the keep mark of an older card stays."""
    path = root / CARD
    kept = ""
    if path.exists():
        kept = path.read_text(encoding="utf-8").partition(KEEP_MARK)[2].lstrip("\n")
    rates = base_rate_table(root, labels, {episode: _cell(app) for episode, app in apps.items()})
    with translate_disk_full(root):
        text = card_text(root.resolve().name, manifest, labels, apps, added_tables=added_tables, base_rates=rates)
        replace_text(path, text + kept)


def card_text(
    name: str,
    manifest: Manifest,
    labels: Mapping[str, Label],
    apps: Mapping[str, str],
    *,
    added_tables: Sequence[AddedTable] = (),
    base_rates: str = "",
) -> str:
    """Return the card of a version, down to the keep mark."""
    counts = Counter((apps[episode], label.fault or "none", label.verdict) for episode, label in labels.items())
    episodes = "\n".join(
        f"| {_cell(app)} | {_cell(fault)} | {verdict} | {count} |"
        for (app, fault, verdict), count in sorted(counts.items())
    )
    added = [table.name for table in added_tables]
    rows, sizes = Counter[str](), Counter[str]()
    for files in manifest.episodes.values():
        for path, record in files.items():
            if record.rows is not None:
                table = Path(path).stem
                rows[table] += record.rows
                sizes[table] += record.bytes
    tables = "\n".join(
        f"| {table} | {rows[table]:,} | {sizes[table] / 1e6:.2f} |" for table in (*TABLES, *added, *TRUTH_TABLES)
    )
    splits = "\n".join(
        f"| {_cell(split)} | {_cell(sides.key)} | {len(sides.train)} | {len(sides.test)} |"
        for split, sides in manifest.splits.items()
    )
    synthetic = (
        "**The data is synthetic**: made by a program that runs no services.\n\n"
        if manifest.provenance.get("synthetic")
        else ""
    )
    compacted = _sampling(manifest.provenance.get("compacted_from"))
    return f"""---
pretty_name: {json.dumps(name)}
tags:
- time-series
- microservices
- anomaly-detection
- root-cause-analysis
configs:
{_configs(added)}
---

# {name}

Labelled telemetry of microservices, with and without faults: {len(labels)} episodes, version {manifest.version},
schema version {manifest.schema_version}.

{synthetic}## Episodes

| app | fault | verdict | episodes |
|---|---|---|---|
{episodes}

A verdict is *manifest* when clients felt the fault, *latent* when only the target's own signals moved, *silent* when
nothing did, *none* without a fault.

## Tables

| table | rows | MB |
|---|---|---|
{tables}

`episodes/<id>/telemetry/` is what a method may see, `episodes/<id>/truth/` is what really happened. Times are UTC with
nanoseconds, windows half-open.

{compacted}{"".join(_dictionary(table) for table in added_tables)}## Splits

| split | never on both sides | train | test |
|---|---|---|---|
{splits}

The lists are in `versions/{manifest.version}.json`, together with the SHA-256 of every file.

## Reading

```python
import pandas as pd
metrics = pd.read_parquet("episodes/<id>/telemetry/metrics.parquet")

from datasets import load_dataset
logs = load_dataset("<this folder>", "logs", split="train")
```

{base_rates}## Provenance

```json
{_provenance(manifest)}
```

{KEEP_MARK}
"""


def _sampling(source: Any) -> str:
    """Return what a compaction left out, in words; nothing where it kept all traces."""
    share = source.get("traces") if isinstance(source, Mapping) else None
    if not isinstance(share, int | float) or not share < 1:
        return ""
    mark = source.get("ids_of_left_out_traces_begin_with")
    how = f" The ids of lines whose spans were left out begin with {_cell(mark)}." if isinstance(mark, str) else ""
    return (
        f"**The traces are a sample**: spans of {share:.0%} of the traces were kept, chosen by their ids alone, "
        f"and log lines of all.{how}\n\n"
    )


def _dictionary(table: AddedTable) -> str:
    """Return the columns of an added table, which no other page describes."""
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


def _provenance(manifest: Manifest) -> str:
    # A page that shows the card must find no tags in it.
    return json.dumps(manifest.provenance, indent=2, sort_keys=True).replace("<", "\\u003c")


def _cell(text: str) -> str:
    """Return a text as a cell of a Markdown table that shows it and nothing else."""
    return escape(printable(text)).replace("|", "&#124;").replace("`", "&#96;")


def _configs(added: Sequence[str]) -> str:
    folders = (("telemetry", [*TABLES, *added]), ("truth", TRUTH_TABLES))
    return "\n".join(
        f"- config_name: {table}\n  data_files: episodes/*/{folder}/{table}.parquet"
        for folder, tables in folders
        for table in tables
    )
