"""Folders of AIOpsLab's observer, and the label that a user may put beside them.

The observer names no fault. A file `label.json` in an export's folder does, for instance
`{"fault": "network_loss", "targets": ["user"], "inject_time": "2026-01-31T10:00:00Z"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS

LABEL_FILE = "label.json"


@dataclass(frozen=True, kw_only=True)
class Export:
    """One export: everything that was observed in one session."""

    root: Path
    name: str

    @property
    def metric_files(self) -> list[Path]:
        """One file for each metric and each time it was asked for."""
        return sorted(self.root.rglob("kpi_*.csv"))

    @property
    def trace_files(self) -> list[Path]:
        """One file for each time traces were asked for."""
        return sorted(self.root.rglob("traces_*.csv"))

    @property
    def log_files(self) -> list[Path]:
        """One file for each time logs were asked for."""
        return sorted(self.root.rglob("log_*.csv"))

    @property
    def label_file(self) -> Path:
        """Where a label is looked for."""
        return self.root / LABEL_FILE


def find_exports(root: Path) -> list[Export]:
    """Return all exports below a folder: each `telemetry_data_*`, else each folder with output of an agent's calls."""
    folders = sorted(
        {path for path in [root, *root.rglob("telemetry_data_*")] if path.name.startswith("telemetry_data_")}
    )
    if not folders:
        outputs = [*root.rglob("metrics_output"), *root.rglob("trace_output")]
        folders = sorted({path.parent for path in outputs if path.is_dir()})
    return [
        Export(root=folder, name=folder.relative_to(root).as_posix() if folder != root else folder.name)
        for folder in folders
    ]


def read_label(export: Export) -> dict[str, Any]:
    """Return the fields of the label; without a file, an episode of which nothing is known.

    Raises
    ------
    DataError
        When the file is not JSON or says too little.
    """
    path = export.label_file
    if not path.is_file():
        return {"fault": None, "no_fault_kind": "unlabelled", "verdict": "unknown"}
    try:
        told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
        fault = told.get("fault")
        if fault is None:
            return {"fault": None, "no_fault_kind": "plain"}
        targets = [str(name) for name in told["targets"]]
        moment = datetime.fromisoformat(str(told["inject_time"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f'{path} is not a label ({error!r}); it needs "fault", "targets" and "inject_time" as ISO 8601'
        ) from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {
        "fault": str(fault),
        "targets": targets,
        "root_causes": [
            {"kind": "Service", "name": name, "service": name, "accepted": [name], "metric": told.get("metric")}
            for name in targets
        ],
        "system_level": told.get("system_level"),
        "fault_type": told.get("fault_type"),
        "inject_start": round(aware.timestamp() * 1000) * SECOND_NS // 1000,
        "parameters": dict(told),
    }
