"""RCAEval's layout H: a folder of Parquet files for each case, and an index of all cases."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_FAILED = 2
"""gRPC's code for an error without a code of its own."""


class RCAEvalExport:
    """Cases `<app>_<service>_<fault>_<number>` with metrics.parquet, logs.parquet and traces.parquet."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._options = options
        self._folder = folder
        self._numbers: Counter[str] = Counter()
        self._index: list[dict[str, Any]] = []

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse what RCAEval has no place for: episodes without a fault, or with several targets."""
        label = self._dataset.label(episode)
        if label.fault is None:
            return "RCAEval has no place for an episode without a fault"
        if len(label.targets) != 1:
            return "RCAEval has no place for a fault with several targets"
        return None

    def write(self, episode: str) -> None:
        """Write one case: rates and levels on a grid of whole seconds, log lines, spans."""
        view, label = self._dataset.view(episode), self._dataset.label(episode)
        app = _word(view.context.app)
        assert label.fault is not None  # an episode without a fault is left out
        assert label.onset_ns is not None
        service, fault = _word(label.targets[0]), _word(label.fault)
        stem = f"{app}_{service}_{fault}"
        self._numbers[stem] += 1
        case = f"{stem}_{self._numbers[stem]}"
        folder = self._folder / case
        folder.mkdir()
        frame = view.wide(max(1.0, self._options.step_s), self._options.roles)
        # Their times are whole seconds.
        times = pa.array(pd.DatetimeIndex(frame.index).as_unit("ns").asi8 // SECOND_NS)
        names = [f"{_word(owner)}_{metric}" for owner, metric in frame.columns]
        arrays = [pa.array(frame.iloc[:, number].to_numpy(), from_pandas=True) for number in range(len(names))]
        _write(pa.table([times, *arrays], names=["time", *names]), folder / "metrics.parquet")
        onset = label.onset_ns // SECOND_NS
        (folder / "inject_time.txt").write_text(f"{onset}\n")
        logs, spans = _logs(view.table("logs")), _traces(view.table("spans"))
        if len(logs):
            _write(logs, folder / "logs.parquet")
        if len(spans):
            _write(spans, folder / "traces.parquet")
        self._index.append(
            {
                "dataset": app,
                "case": case,
                "root_cause_service": service,
                "fault": fault,
                "n_metrics": len(names),
                "inject_time": onset,
                "n_logs": len(logs),
                "n_traces": len(spans),
            }
        )

    def finish(self) -> None:
        """Write the index."""
        _write(pa.Table.from_pylist(self._index), self._folder / "cases.parquet")


def _word(name: str) -> str:
    """Return a name without the sign that separates the parts of RCAEval's names."""
    return re.sub(r"[_/\s]+", "-", name)


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(table, parquet_path(path), compression="zstd")


def _logs(logs: pa.Table) -> pa.Table:
    rows = {
        "timestamp": logs["time"].cast(pa.int64()),
        "container_name": pc.coalesce(logs["service"].cast(pa.string()), logs["container"].cast(pa.string())),
        "message": logs["message"],
        "level": logs["level"].cast(pa.string()),
    }
    return pa.table(rows)


def _traces(spans: pa.Table) -> pa.Table:
    started = spans["time"].cast(pa.int64()).to_numpy()
    named = pc.coalesce(spans["service"].cast(pa.string()), spans["reported_service"].cast(pa.string()))
    status = spans["status"].cast(pa.string())
    plain = pc.case_when(
        pc.make_struct(pc.equal(status, "error"), pc.equal(status, "ok")),
        pa.scalar(float(_FAILED)),
        pa.scalar(0.0),
        pa.scalar(None, pa.float64()),
    )
    rows = {
        "traceID": spans["trace_id"],
        "spanID": spans["span_id"],
        "serviceName": named,
        "methodName": spans["operation"].cast(pa.string()),
        "operationName": spans["operation"].cast(pa.string()),
        "startTimeMillis": started // 1_000_000,
        "startTime": started // 1_000,
        "duration": np.round(spans["duration_ns"].to_numpy() / 1_000).astype(np.int64),
        "statusCode": pc.coalesce(spans["status_code"].cast(pa.float64()), plain),
        "parentSpanID": spans["parent_span_id"],
    }
    return pa.table(rows)
