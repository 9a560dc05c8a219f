"""Score answers computed elsewhere by the rules of an evaluation, without running methods."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.execution.dataset_source import DatasetSource, open_source
from faultset.evaluators.results.rows import PROTOCOLS, TASKS, ResultRow, read_rows
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.thresholds import choose_policies

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.dataset import Dataset


def score(
    dataset: str | Path | Dataset,
    answers: pd.DataFrame | Sequence[ResultRow] | str | Path,
    *,
    version: str | None = None,
    seed: int = 0,
) -> Evaluation:
    """Score answers to the episodes of a dataset.

    Parameters
    ----------
    dataset
        Folder, URL, or opened dataset with the ground truth.
    answers
        Rows or a `results.parquet` of an earlier evaluation, or a frame with one row per answer and the columns
        - `episode`, `baseline` (name of the method), `task` (detection, localization or rca);
        - detection: `alarm_ns`, missing if no alarm was raised;
        - localization: `ranking`, a mapping from services to scores or a list of services, best first;
        - root cause: `system_level` and `fault_type`;
        - optional: `protocol` (detected or oracle; "oracle" by default, "detected" for detection), `given_alarm_ns`,
          `seed`, `kind` (method, rule or control), `cpu_seconds`; `status` and `reason` of a missing answer.
    version
        Version of the dataset; the newest by default.
    seed
        Seed of the randomised tests.

    Raises
    ------
    UsageError
        A column is missing or holds an invalid answer.
    DataError
        An answer is about an episode that is not in the dataset.

    Examples
    --------
    >>> import pandas as pd
    >>> from faultset.evaluators import score
    >>> rows = pd.DataFrame({"episode": ["e1"], "baseline": "agent", "task": "localization", "ranking": [["geo"]]})
    >>> score("datasets/sample", rows).leaderboard("localization")  # doctest: +SKIP
    """
    with open_source(dataset, version, workers=1) as read_source:
        source = read_source()
    return Evaluation(
        rows=_read_answers(answers, source),
        dataset=None if source.url else source.folder,
        digest=source.digest,
        settings={"source": source.url or str(source.folder), "answers": "computed elsewhere"},
        policies=tuple(choose_policies([])),
        seed=seed,
    )


def _read_answers(
    answers: pd.DataFrame | Sequence[ResultRow] | str | Path, source: DatasetSource
) -> tuple[ResultRow, ...]:
    truths = {truth.episode: truth for truth in source.truths}
    if isinstance(answers, str | Path):
        path = Path(answers)
        answers = read_rows(path / "results.parquet" if path.is_dir() else path)
    if isinstance(answers, Sequence):
        rows = [_set_truth(row, truths, source) for row in answers]
    else:
        rows = [_build_row(record, truths, source) for record in answers.to_dict("records")]
    if not rows:
        raise UsageError("there is no answer to score; give at least one")
    return tuple(rows)


def _find_truth(episode: str, truths: Mapping[str, Truth], source: DatasetSource) -> Truth:
    if episode not in truths:
        raise DataError(
            f'an answer is about the episode "{episode}", which is not in {source.name} version {source.version}; '
            "choose the version that was answered, or leave the answer out"
        )
    return truths[episode]


def _set_truth(row: ResultRow, truths: Mapping[str, Truth], source: DatasetSource) -> ResultRow:
    from dataclasses import replace

    return replace(row, truth=_find_truth(row.episode, truths, source), dataset=source.name, version=source.version)


def _build_row(record: Mapping[Any, Any], truths: Mapping[str, Truth], source: DatasetSource) -> ResultRow:
    fields = {str(name): value for name, value in record.items() if not _is_missing(value)}
    for name in ("episode", "baseline", "task"):
        if name not in fields:
            raise UsageError(f'every answer must have episode, baseline and task, but one has no "{name}"')
    task = str(fields["task"])
    protocol = str(fields.get("protocol", "detected" if task == "detection" else "oracle"))
    if task not in TASKS or protocol not in PROTOCOLS:
        raise UsageError(
            f'an answer has the task "{task}" and the protocol "{protocol}"; tasks are {", ".join(TASKS)}, '
            f"protocols {', '.join(PROTOCOLS)}"
        )
    truth = _find_truth(str(fields["episode"]), truths, source)
    alarm_ns = fields.get("given_alarm_ns", truth.onset_ns if protocol == "oracle" else None)
    return ResultRow(
        baseline=str(fields["baseline"]),
        kind=str(fields.get("kind", "method")),
        needs=(),
        settings="",
        dataset=source.name,
        version=source.version,
        split=str(fields.get("split", "none")),
        fold=0,
        task=task,
        protocol=protocol,
        seed=int(fields.get("seed", 0)),
        status=fields.get("status", "ok"),
        reason=str(fields.get("reason", "")),
        given_alarm_ns=None if alarm_ns is None or task == "detection" else int(alarm_ns),
        alarm_source="truth" if protocol == "oracle" else None,
        alarm_ns=int(fields["alarm_ns"]) if task == "detection" and "alarm_ns" in fields else None,
        answer={name: fields[name] for name in ("system_level", "fault_type") if task == "rca" and name in fields},
        ranking=_read_ranking(fields.get("ranking", {}), truth) if task == "localization" else {},
        cpu_seconds=float(fields["cpu_seconds"]) if "cpu_seconds" in fields else None,
        truth=truth,
    )


def _read_ranking(value: Any, truth: Truth) -> dict[str, float]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise UsageError(
                f"the ranking of {truth.episode} must be a list of services or a mapping in JSON, got {value[:60]!r}"
            ) from None
    if isinstance(value, Mapping):
        scores = {str(name): float(number) for name, number in value.items()}
    elif isinstance(value, Iterable):
        names = [str(name) for name in value]
        scores = {name: float(len(names) - i) for i, name in reversed(list(enumerate(names)))}
    else:
        raise UsageError(f"the ranking of {truth.episode} must be a list of services or a mapping, got {value!r}")
    return {name: number for name, number in scores.items() if name in truth.candidates}


def _is_missing(value: object) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType")
    )
