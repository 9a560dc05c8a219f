"""OpenRCA's archives: a CSV file with a query, a prediction and the truth in each row, and its scoring told again.

A score is the share of asked criteria that hold under the best assignment of predicted to true causes, and 0 where
their numbers differ. A query asks for some of time (within 60 s), component and reason, by the number of its task.
Source: OpenRCA, `main/evaluate.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.agents.formats.contract import ImportedRun, ImportOptions, OwnScore
from faultset.agents.formats.files import files_below
from faultset.agents.formats.openrca.truths import ASKED, Cause, causes_of, moment, stated_cause
from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.reading import LIMIT_BYTES
from faultset.agents.trajectories.writing import TrajectoryWriter, jsonable
from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.printable import printable
from faultset.core.reading.regular_files import read_regular

TOLERANCE_S = 60.0
_COLUMNS = ("instruction", "prediction", "groundtruth", "score", "task_index")
_KEYS = {
    "root cause occurrence datetime": "time",
    "root cause component": "component",
    "root cause reason": "reason",
}
_MOST_CAUSES = 100
_LABELS = "ground truth in the archive"


class OpenRCAArchives:
    """Archives `agent-<system>.csv` of OpenRCA's runs."""

    name = "openrca"
    title = "OpenRCA"

    def files(self, path: Path) -> Sequence[Path]:
        """Find the archives."""
        return files_below(path, lambda file: file.suffix == ".csv", "a folder of OpenRCA's archives")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the rows of one archive."""
        rows = _rows(file)
        stated = [_stated(row, f"row {number} of {printable(file)}") for number, row in enumerate(rows, start=1)]
        pool = [dict(one) for one in dict.fromkeys(tuple(cause.items()) for cause in stated)]
        found = zip(rows, stated, strict=True)
        return [
            self._run(row, number, causes_of(row, own, pool), own, file, options)
            for number, (row, own) in enumerate(found)
        ]

    def _run(
        self,
        row: Mapping[str, str],
        number: int,
        causes: list[Cause] | None,
        own: Cause,
        file: Path,
        options: ImportOptions,
    ) -> ImportedRun:
        system = file.stem.partition("-")[2] or file.stem
        truth = None if causes is None else {"causes": causes, "asked": list(ASKED[row["task_index"].strip()])}
        writer = TrajectoryWriter(options.agent or "RCA-agent", model=options.model)
        writer.said("user", row["instruction"])
        writer.acted(row["prediction"])
        trajectory = writer.trajectory()
        found = decided(trajectory, _answer(row["prediction"]))
        run = counted_run(
            self.name,
            trajectory,
            found,
            dataset=system[:500],
            episode=f"{system}/{row.get('row_id', number)}"[:500],
            task="root_cause",
            protocol=row["task_index"],
        )
        recorded = {name: row[name] for name in ("passed", "failed", "score") if name in row}
        score = _number(row["score"])
        place = "+".join(sorted(f"{cause['component']}:{cause['reason']}" for cause in causes or [own]))
        own_truth = RunTruth(
            cluster=f"{system}/{place}"[:500],
            label_version=_LABELS if truth else None,
            truth_json=canonical_json(jsonable(truth)) if truth else None,
            recorded_success=None if score is None else score == 1.0,
            recorded_value=score,
            recorded_json=canonical_json(jsonable(recorded)),
        )
        return ImportedRun(key=f"{number:05d}", trajectory=trajectory, run=run, truth=own_truth)

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Score a prediction as OpenRCA does."""
        predicted = (run.answer or {}).get("root_causes", [])
        causes, asked = truth["causes"], truth["asked"]
        if len(predicted) != len(causes):
            return OwnScore(success=False, value=0.0)
        passed = _best_assignment(predicted, causes, asked)
        value = round(passed / (len(causes) * len(asked)), 2)
        return OwnScore(success=value == 1.0, value=value)

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """OpenRCA reads predictions with one regular expression, which wants the keys in one order."""
        return "OpenRCA's reader wants three keys in one order" if (run.answer or {}).get("other_layout") else ""


def _rows(file: Path) -> list[dict[str, str]]:
    import io

    import pandas as pd

    content = read_regular(file, limit_bytes=LIMIT_BYTES)
    try:
        table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, na_filter=False)
    except (ValueError, pd.errors.ParserError, UnicodeDecodeError, MemoryError) as problem:
        reason = printable(str(problem).partition("\n")[0][:200])
        raise DataError(f"{printable(file)} is no CSV table ({reason}); restore the file") from None
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise DataError(f"{printable(file)} lacks the column {missing[0]} of an OpenRCA archive; give another file")
    rows: list[dict[str, str]] = table.to_dict("records")  # type: ignore[assignment]
    if not rows:
        raise DataError(f"{printable(file)} has no row; give another file")
    return rows


def _stated(row: Mapping[str, str], origin: str) -> Cause:
    if row["task_index"].strip() not in ASKED:
        raise DataError(f"{origin} is of an unknown task {printable(row['task_index'][:40])}; restore the file")
    cause = stated_cause(row["groundtruth"])
    if cause is None:
        raise DataError(f"{origin} has no ground truth with component, reason and datetime; restore the file")
    return cause


def _answer(text: str) -> ReadAnswer:
    if not text.strip():
        return ReadAnswer(status="no_answer", reason="the prediction is empty")
    inside = text[text.find("{") : text.rfind("}") + 1]
    try:
        found = json.loads(inside)
    except (ValueError, RecursionError):
        return ReadAnswer(status="unparsed", reason="the prediction is no JSON")
    objects = [found] if any(key in _KEYS for key in found) else list(found.values())
    causes = [one for one in objects if isinstance(one, dict)][: _MOST_CAUSES + 1]
    if not causes:
        return ReadAnswer(status="invalid", reason="the prediction names no cause")
    other = any([*one] != [key for key in _KEYS if key in one] for one in causes)
    answer: dict[str, Any] = {"root_causes": [{_KEYS[key]: one[key] for key in _KEYS if key in one} for one in causes]}
    return ReadAnswer(status="ok", answer=answer | ({"other_layout": True} if other else {}))


def _best_assignment(predicted: Sequence[Any], causes: Sequence[Any], asked: Sequence[str]) -> int:
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    held = np.array([[sum(_holds(name, one, cause) for name in asked) for cause in causes] for one in predicted])
    rows, columns = linear_sum_assignment(held, maximize=True)
    return int(held[rows, columns].sum())


def _holds(name: str, predicted: Mapping[str, Any], cause: Mapping[str, str]) -> bool:
    value = predicted.get(name)
    if name != "time":
        return value == cause[name]
    moments = [moment(value), moment(cause[name])]
    if moments[0] is None or moments[1] is None:
        return False
    return abs((moments[0] - moments[1]).total_seconds()) <= TOLERANCE_S


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
