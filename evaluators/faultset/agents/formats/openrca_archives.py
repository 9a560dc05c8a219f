"""Read archives of OpenRCA runs, and reconstruct the true causes of each query.

A row contains one complete cause, even if its query asks for several. It also contains the criteria that passed and
failed, as values without field names. The other causes are taken from rows close in time, so that the requested values
of all causes are exactly the criteria.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from faultset.agents.formats.contract import ImportedRun, ImportOptions, SourceScore, files_below, get_data_suffix
from faultset.agents.runs.answers import ReadAnswer, build_run, decide_status
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.trajectory import LIMIT_BYTES, TrajectoryWriter, jsonable
from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.printable import printable
from faultset.core.regular_files import read_unpacked
from faultset.datasets.imports.formats.openrca_rows import TASK_FIELDS

_MAX_DISTANCE_S = 3600.0
_MAX_OTHERS = 2
_NUMBERS = {"two": 2, "three": 3, "2": 2, "3": 3}
_COUNT = re.compile(r"\b(two|three|2|3)\b[\w\s,-]{0,60}?\b(?:failures|root causes)\b", re.IGNORECASE)
_COUNT_AFTER = re.compile(r"(?:number of \w+|\w+ count)[^.]{0,80}?\b(?:is|was|of) (two|three|2|3)\b", re.IGNORECASE)
Cause = dict[str, str]


def parse_cause(text: str) -> Cause | None:
    """Return the cause stated in a row; None if a field is missing."""
    lines = (line.partition(":") for line in text.splitlines())
    fields = {name: value.strip() for name, colon, value in lines if colon}
    if not {"component", "reason", "datetime"} <= set(fields) or parse_time(fields["datetime"]) is None:
        return None
    return {"time": fields["datetime"], "component": fields["component"], "reason": fields["reason"]}


def reconstruct_causes(row: Mapping[str, str], stated: Cause, pool: Sequence[Cause]) -> list[Cause] | None:
    """Return all causes that a query asks for; None if they cannot be reconstructed.

    Parameters
    ----------
    stated
        The cause in the row.
    pool
        The distinct causes in the archive.
    """
    requested = TASK_FIELDS[row["task_index"].strip()]
    criteria = {
        line.strip() for name in ("passed", "failed") for line in row.get(name, "").splitlines() if line.strip()
    }
    if criteria in (set(), {"N/A"}):
        return [stated]
    number = _read_number_of_causes(row["instruction"])
    others = [cause for cause in pool if cause != stated and _measure_distance_s(cause, stated) <= _MAX_DISTANCE_S]
    others.sort(key=lambda cause: _measure_distance_s(cause, stated))
    for count in range(number - 1, _MAX_OTHERS + 1):
        for chosen in itertools.combinations(others, count):
            causes = [stated, *chosen]
            if {cause[name] for cause in causes for name in requested} == criteria:
                return causes
    return None


def parse_time(text: Any) -> datetime | None:
    """Parse a time in OpenRCA's format; None if it is invalid."""
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d %H:%M:%S") if isinstance(text, str) else None
    except ValueError:
        return None


def _read_number_of_causes(instruction: str) -> int:
    match = _COUNT.search(instruction) or _COUNT_AFTER.search(instruction)
    return _NUMBERS[match[1].lower()] if match else 1


def _measure_distance_s(left: Cause, right: Cause) -> float:
    first, second = parse_time(left["time"]), parse_time(right["time"])
    return abs((first - second).total_seconds()) if first and second else float("inf")


TOLERANCE_S = 60.0
_COLUMNS = ("instruction", "prediction", "groundtruth", "score", "task_index")
_KEYS = {
    "root cause occurrence datetime": "time",
    "root cause component": "component",
    "root cause reason": "reason",
}
_MAX_CAUSES = 100
_LABELS = "ground truth in the archive"


class OpenRCAArchives:
    """Archives `agent-<system>.csv` of OpenRCA's runs."""

    name = "openrca"
    title = "OpenRCA"

    def files(self, path: Path) -> Sequence[Path]:
        """Return the archives."""
        return files_below(path, lambda file: get_data_suffix(file) == ".csv", "a folder of OpenRCA's archives")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the rows of one archive."""
        rows = _read_rows(file)
        causes = [
            _read_stated_cause(row, f"row {number} of {printable(file)}") for number, row in enumerate(rows, start=1)
        ]
        pool = [dict(items) for items in dict.fromkeys(tuple(cause.items()) for cause in causes)]
        return [
            self._run(row, number, reconstruct_causes(row, stated, pool), stated, file, options)
            for number, (row, stated) in enumerate(zip(rows, causes, strict=True))
        ]

    def _run(
        self,
        row: Mapping[str, str],
        number: int,
        causes: list[Cause] | None,
        stated: Cause,
        file: Path,
        options: ImportOptions,
    ) -> ImportedRun:
        system = file.stem.partition("-")[2] or file.stem
        truth = None if causes is None else {"causes": causes, "asked": list(TASK_FIELDS[row["task_index"].strip()])}
        writer = TrajectoryWriter(options.agent or "RCA-agent", model=options.model)
        writer.add_message("user", row["instruction"])
        writer.add_agent_step(row["prediction"])
        trajectory = writer.trajectory()
        run = build_run(
            self.name,
            trajectory,
            decide_status(trajectory, _parse_answer(row["prediction"])),
            dataset=system[:500],
            episode=f"{system}/{row.get('row_id', number)}"[:500],
            task="root_cause",
            protocol=row["task_index"],
        )
        recorded = {name: row[name] for name in ("passed", "failed", "score") if name in row}
        score = _parse_score(row["score"])
        cluster = "+".join(sorted(f"{cause['component']}:{cause['reason']}" for cause in causes or [stated]))
        run_truth = RunTruth(
            cluster=f"{system}/{cluster}"[:500],
            label_version=_LABELS if truth else None,
            truth_json=canonical_json(jsonable(truth)) if truth else None,
            recorded_success=None if score is None else score == 1.0,
            recorded_value=score,
            recorded_json=canonical_json(jsonable(recorded)),
        )
        return ImportedRun(key=f"{number:05d}", trajectory=trajectory, run=run, truth=run_truth)

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> SourceScore | None:
        """Score a prediction as OpenRCA does."""
        predicted = (run.answer or {}).get("root_causes", [])
        causes, fields = truth["causes"], truth["asked"]
        if len(predicted) != len(causes):
            return SourceScore(success=False, value=0.0)
        passed = _count_best_matches(predicted, causes, fields)
        value = round(passed / (len(causes) * len(fields)), 2)
        return SourceScore(success=value == 1.0, value=value)

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Explain answers that OpenRCA's regular expression misses because their keys are in a different order."""
        if not (run.answer or {}).get("other_layout"):
            return ""
        return "OpenRCA's parser requires the three keys in a fixed order"


def _read_rows(file: Path) -> list[dict[str, str]]:
    import io

    import pandas as pd

    content = read_unpacked(file, limit_bytes=LIMIT_BYTES)
    try:
        table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False, na_filter=False)
    except (ValueError, pd.errors.ParserError, UnicodeDecodeError, MemoryError) as problem:
        reason = printable(str(problem).partition("\n")[0][:200])
        raise DataError(f"{printable(file)} is not a CSV table ({reason}); restore the file") from None
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise DataError(f"{printable(file)} lacks the column {missing[0]} of an OpenRCA archive; give another file")
    rows: list[dict[str, str]] = table.to_dict("records")  # type: ignore[assignment]
    if not rows:
        raise DataError(f"{printable(file)} has no rows; give another file")
    return rows


def _read_stated_cause(row: Mapping[str, str], origin: str) -> Cause:
    if row["task_index"].strip() not in TASK_FIELDS:
        raise DataError(f"{origin} has the unknown task {printable(row['task_index'][:40])}; restore the file")
    cause = parse_cause(row["groundtruth"])
    if cause is None:
        raise DataError(f"{origin} has no ground truth with component, reason and datetime; restore the file")
    return cause


def _parse_answer(text: str) -> ReadAnswer:
    if not text.strip():
        return ReadAnswer(status="no_answer", reason="the prediction is empty")
    inside = text[text.find("{") : text.rfind("}") + 1]
    try:
        content = json.loads(inside)
    except (ValueError, RecursionError):
        return ReadAnswer(status="unparsed", reason="the prediction is not JSON")
    objects = [content] if any(key in _KEYS for key in content) else list(content.values())
    causes = [item for item in objects if isinstance(item, dict)][: _MAX_CAUSES + 1]
    if not causes:
        return ReadAnswer(status="invalid", reason="the prediction names no cause")
    has_other_order = any([*cause] != [key for key in _KEYS if key in cause] for cause in causes)
    root_causes = [{_KEYS[key]: cause[key] for key in _KEYS if key in cause} for cause in causes]
    return ReadAnswer(
        status="ok", answer={"root_causes": root_causes} | ({"other_layout": True} if has_other_order else {})
    )


def _count_best_matches(predicted: Sequence[Any], causes: Sequence[Any], requested: Sequence[str]) -> int:
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    matches = np.array(
        [[sum(_matches(name, guess, cause) for name in requested) for cause in causes] for guess in predicted]
    )
    rows, columns = linear_sum_assignment(matches, maximize=True)
    return int(matches[rows, columns].sum())


def _matches(name: str, predicted: Mapping[str, Any], cause: Mapping[str, str]) -> bool:
    value = predicted.get(name)
    if name != "time":
        return value == cause[name]
    guess, true = parse_time(value), parse_time(cause[name])
    if guess is None or true is None:
        return False
    return abs((guess - true).total_seconds()) <= TOLERANCE_S


def _parse_score(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
