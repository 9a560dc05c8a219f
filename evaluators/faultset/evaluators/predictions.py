"""Prediction files (Parquet or CSV) of external models: read, check, and turn into result rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from faultset.baselines.contract import CONSECUTIVE, Detection, Diagnosis, Ranking, Task
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import count_text, printable, quoted
from faultset.core.regular_files import read_regular
from faultset.datasets.training.folds import Fold
from faultset.evaluators.execution.runners.answers import check_detection, check_diagnosis, check_ranking
from faultset.evaluators.execution.runners.messages import CheckedAnswer
from faultset.evaluators.execution.settings import EvaluationScope, majority_labels
from faultset.evaluators.results.provenance import code_version, library_versions, settings_hash
from faultset.evaluators.results.rows import PROTOCOLS, Protocol, ResultRow, StoredAnswer
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.thresholds import HealthyScores, TrainQuantile

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute
# pyarrow creates these functions at import, so type checkers cannot see them

TEXTS = ("episode", "service", "level", "type", "protocol")
TIMES = ("time", "alarm")
NUMBERS = ("score", "threshold")
MAX_BYTES = 512 << 20
"""Size limit of a file."""
MAX_ROWS = 20_000_000
_MAX_UNPACKED = 2 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_INSTANT = pa.timestamp("ns", tz="UTC")


@dataclass(frozen=True, kw_only=True)
class PredictionLayout:
    """Columns of one kind of prediction file."""

    task: Task
    key: tuple[str, ...]
    """Columns that identify a row."""
    values: tuple[str, ...] = ()
    """Further required columns."""
    constant: tuple[str, ...] = ()
    """Optional columns, with one value per episode."""

    @property
    def required(self) -> tuple[str, ...]:
        return (*self.key, *self.values)


SCORES = PredictionLayout(task="detection", key=("episode", "time"), values=("score",), constant=("threshold",))
ALARMS = PredictionLayout(task="detection", key=("episode",), values=("alarm",))
RANKINGS = PredictionLayout(task="localization", key=("episode", "service"), values=("score",), constant=("protocol",))
DIAGNOSES = PredictionLayout(task="rca", key=("episode",), values=("level", "type"), constant=("protocol",))
LAYOUTS = (SCORES, ALARMS, RANKINGS, DIAGNOSES)


@dataclass(frozen=True, kw_only=True)
class PredictionFile:
    """A prediction file with typed columns, not yet checked against a dataset."""

    name: str
    """Name of the method in tables."""
    path: Path
    sha256: str
    """Hash of the content."""
    layout: PredictionLayout
    frame: pd.DataFrame
    """Texts as categories, times as UTC nanoseconds (-1 for none), numbers as doubles."""

    @property
    def sets_threshold_in_training(self) -> bool:
        """Return whether the evaluation must set the threshold from scores of training episodes."""
        return self.layout is SCORES and "threshold" not in self.frame

    @property
    def code(self) -> str:
        """Return the identity of the content, used in place of a baseline's code."""
        return f"predictions {self.sha256[:16]}"

    @property
    def record(self) -> dict[str, object]:
        """Return the description of the file in an evaluation's settings."""
        return {"file": str(self.path), "sha256": self.sha256, "task": self.layout.task, "rows": len(self.frame)}


def read_prediction_file(argument: str | Path) -> PredictionFile:
    """Read a prediction file.

    `argument`: `FILE` or `NAME=FILE`; Parquet or CSV.
    """
    name, path = split_argument(argument)
    content = read_regular(path, limit_bytes=MAX_BYTES)
    origin = printable(path)
    table = _read_parquet(content, origin) if content.startswith(b"PAR1") else _read_csv(content, origin)
    layout = find_layout(table.column_names, origin)
    if not len(table):
        raise DataError(f"{origin} must contain at least one answer, but has no rows")
    converters = dict.fromkeys(TEXTS, _convert_texts) | dict.fromkeys(TIMES, _convert_times)
    columns = {
        column: converters.get(column, _convert_numbers)(table[column], column, origin) for column in table.column_names
    }
    frame = pa.table(columns).to_pandas()
    return PredictionFile(name=name, path=path, sha256=hashlib.sha256(content).hexdigest(), layout=layout, frame=frame)


def split_argument(argument: str | Path) -> tuple[str, Path]:
    """Split `FILE` or `NAME=FILE`; the name defaults to the file name without its extension.

    Examples
    --------
    >>> split_argument("out/usad.parquet"), split_argument("usad-long=out/usad.parquet")
    (('usad', PosixPath('out/usad.parquet')), ('usad-long', PosixPath('out/usad.parquet')))
    """
    name, separator, rest = str(argument).partition("=")
    path = Path(argument)
    if separator and _NAME.fullmatch(name) and not path.exists():
        if not rest:
            raise UsageError(f"--predictions {argument} has no file after the name; write NAME=FILE")
        return name, Path(rest)
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"the file name {quoted(path.stem)} of {printable(path)} cannot be a method's name; write NAME=FILE with a "
            'name of letters, digits, "-", "." and "_"'
        )
    return path.stem, path


def find_layout(columns: Sequence[str], origin: str) -> PredictionLayout:
    """Determine the layout of a prediction file from its columns; raise DataError if they match none."""
    repeated = sorted({name for name in columns if list(columns).count(name) > 1})
    if repeated:
        raise DataError(f"{origin} has the column {quoted(repeated[0])} more than once; keep one of them")
    for layout in LAYOUTS:
        if {*layout.required} <= {*columns} <= {*layout.required, *layout.constant}:
            return layout
    expected = "; ".join(
        ", ".join([*layout.required, *(f"[{name}]" for name in layout.constant)]) for layout in LAYOUTS
    )
    present = ", ".join(quoted(name) for name in list(columns)[:8])
    raise DataError(f"{origin} has the columns {present}, expected one of: {expected}; write one file per task")


def _read_parquet(content: bytes, origin: str) -> pa.Table:
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as head:
            find_layout(head.schema_arrow.names, origin)
            metadata = head.metadata
            unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
            if metadata.num_rows > MAX_ROWS or unpacked > _MAX_UNPACKED:
                raise DataError(
                    f"{origin} has {metadata.num_rows:,} rows of {unpacked:,} bytes, but the limits are {MAX_ROWS:,} "
                    f"and {_MAX_UNPACKED:,}; keep only the episodes that are scored"
                )
            texts = [field.name for field in head.schema_arrow if field.name in TEXTS and _is_text(field.type)]
        # dictionaries store a repeated text once
        return pq.read_table(pa.BufferReader(content), read_dictionary=texts)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise _explain_damage(origin, "Parquet", error) from error


def _read_csv(content: bytes, origin: str) -> pa.Table:
    if not content.partition(b"\n")[0].strip():
        raise DataError(f"{origin} must contain Parquet, or CSV with a header, but is empty")
    # read every cell as text, so that no type is guessed from the first lines
    conversion = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys((*TEXTS, *TIMES, *NUMBERS), pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    try:
        table = pyarrow.csv.read_csv(pa.BufferReader(content), convert_options=conversion)
        find_layout(table.column_names, origin)  # names may not be UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _explain_damage(origin, "CSV", error) from error
    if len(table) > MAX_ROWS:
        raise DataError(
            f"{origin} has {len(table):,} rows, but the limit is {MAX_ROWS:,}; keep only the episodes that are scored"
        )
    return table


def _convert_texts(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        raise DataError(f"column {name} of {origin} must be text, got {kind}; write it as text")
    try:
        column.validate(full=True)
        return column.cast(_TEXT).unify_dictionaries()
    except pa.ArrowException as error:
        raise _explain_damage(origin, "UTF-8 text", error) from error


def _convert_times(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    """Return UTC nanoseconds; -1 means that no alarm was raised."""
    expected = "must be UTC nanoseconds as integers, or times with a time zone"
    kind = column.type
    if name == "time" and column.null_count:
        raise DataError(f"column {name} of {origin} has {column.null_count} empty cells; remove those rows")
    try:
        if _is_text(kind):
            digits = pc.all(pc.match_substring_regex(column, r"^\d{1,19}$")).as_py() in (True, None)
            column = column.cast(pa.int64()) if digits else column.cast(_INSTANT).cast(pa.int64())
        elif pa.types.is_timestamp(kind) and kind.tz is not None:
            column = column.cast(_INSTANT).cast(pa.int64())
        elif pa.types.is_integer(kind) or pa.types.is_null(kind):
            column = column.cast(pa.int64())
        else:
            raise DataError(f"column {name} of {origin} {expected}, got {kind}; convert it")
    except pa.ArrowException as error:
        raise DataError(f"column {name} of {origin} {expected} ({_get_first_line(error)}); convert it") from error
    return pc.fill_null(column, -1)


def _convert_numbers(column: pa.ChunkedArray, name: str, origin: str) -> pa.ChunkedArray:
    kind = column.type
    if not (_is_text(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise DataError(f"column {name} of {origin} must be numbers, got {kind}; convert it")
    try:
        doubles = column.cast(pa.float64(), safe=not pa.types.is_integer(kind))
    except pa.ArrowException as error:
        raise DataError(f"column {name} of {origin} must be numbers ({_get_first_line(error)}); convert it") from error
    values = np.asarray(pc.drop_null(doubles).to_numpy(), dtype=float)
    invalid = int((~np.isfinite(values)).sum())
    if invalid:
        raise DataError(
            f"column {name} of {origin} must be finite, but {invalid} of {len(values)} values are NaN or infinite; "
            "remove those rows or replace the values"
        )
    return doubles


def check_names(files: Sequence[PredictionFile], used_names: Sequence[str]) -> None:
    """Raise UsageError if two methods of an evaluation would have the same name."""
    names = set(used_names)
    for file in files:
        if file.name in names:
            raise UsageError(
                f'the name "{file.name}" of the predictions in {printable(file.path)} belongs to another method; '
                "choose another with NAME=FILE"
            )
        names.add(file.name)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _explain_damage(origin: str, kind: str, error: Exception) -> DataError:
    return DataError(f"{origin} cannot be read as {kind} ({_get_first_line(error)}); write it again")


def _get_first_line(error: Exception) -> str:
    return printable(str(error).partition("\n")[0][:160])


def check_predictions(file: PredictionFile, truths: Mapping[str, Truth], dataset: str) -> None:
    """Check every row of a file against its episode's view and candidates; raise DataError for the first wrong one.

    `dataset` is its name and version, for messages.
    """
    frame, origin = file.frame, printable(file.path)
    if frame["episode"].isna().any():
        raise DataError(
            f"{origin} has {count_text(int(frame['episode'].isna().sum()), 'row')} without an episode; remove them"
        )
    unknown = sorted(set(frame["episode"].unique()) - set(truths))
    if unknown:
        raise DataError(
            f"{origin} has answers for {count_text(len(unknown), 'episode')} missing from {dataset} (first: "
            f"{quoted(unknown[0])}); predict this version, or choose the predicted one with --version"
        )
    _check_repeats(file, origin)
    if file.layout is SCORES:
        for name in NUMBERS:
            if name in frame and frame[name].isna().any():
                raise DataError(
                    f"column {name} of {origin} has {int(frame[name].isna().sum())} empty cells; remove those rows or "
                    "fill in numbers"
                )
        _check_times(frame, "time", truths, origin)
    elif file.layout is ALARMS:
        _check_times(frame[frame["alarm"] >= 0], "alarm", truths, origin)
    elif file.layout is RANKINGS:
        _check_candidates(frame, truths, origin)
    if "protocol" in frame and (set(frame["protocol"].unique()) - set(PROTOCOLS) or frame["protocol"].nunique() != 1):
        values = ", ".join(quoted(str(value)) for value in frame["protocol"].unique().tolist()[:3])
        raise DataError(
            f"column protocol of {origin} must have one value, {' or '.join(PROTOCOLS)}, but contains {values}; "
            "write one file per protocol"
        )


def _check_repeats(file: PredictionFile, origin: str) -> None:
    frame, layout = file.frame, file.layout
    repeated = frame.duplicated(list(layout.key))
    if repeated.any():
        row = frame[repeated].iloc[0]
        values = (int(row[name]) if isinstance(row[name], np.integer) else row[name] for name in layout.key)
        key = ", ".join(f"{name} {quoted(value)}" for name, value in zip(layout.key, values, strict=True))
        raise DataError(
            f"{origin} has {int(repeated.sum())} repeated rows (first: {key}); keep one row per "
            f"{' and '.join(layout.key)}"
        )
    for name in layout.constant:
        if name in frame:
            counts = frame.groupby("episode", observed=True)[name].nunique()
            if (counts > 1).any():
                raise DataError(
                    f"column {name} of {origin} must have one value per episode, but has {int(counts.max())} in "
                    f"{quoted(str(counts.idxmax()))}; keep one"
                )


def _check_times(frame: pd.DataFrame, name: str, truths: Mapping[str, Truth], origin: str) -> None:
    episodes = frame["episode"].astype(str)
    times = frame[name].to_numpy(dtype=np.int64)
    start = episodes.map({e: truth.view_start_ns for e, truth in truths.items()}).to_numpy(dtype=np.int64)
    end = episodes.map({e: truth.view_end_ns for e, truth in truths.items()}).to_numpy(dtype=np.int64)
    outside = (times < start) | (times > end)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise DataError(
            f"column {name} of {origin} must be within the episode's view, but {int(outside.sum())} of {len(frame)} "
            f"times are not (first: {times[first]} in {quoted(episodes.iloc[first])}, whose view is {start[first]} to "
            f"{end[first]}); write the UTC nanoseconds at which the sample is complete"
        )


def _check_candidates(frame: pd.DataFrame, truths: Mapping[str, Truth], origin: str) -> None:
    is_empty = frame["service"].isna()
    if (frame["score"].isna() != is_empty).any():
        raise DataError(
            f"{origin} has rows with a service but no score, or a score but no service; fill in both, or leave both "
            "empty if the model names no service"
        )
    is_mixed = is_empty & (frame.groupby("episode", observed=True)["episode"].transform("size") > 1)
    if is_mixed.any():
        raise DataError(
            f"{origin} has rows with and without a service for the episode "
            f"{quoted(str(frame.loc[is_mixed, 'episode'].iloc[0]))}; keep only one kind"
        )
    pairs = frame.loc[~is_empty, ["episode", "service"]].drop_duplicates()
    for episode, service in zip(pairs["episode"], pairs["service"], strict=True):
        if service not in truths[episode].candidates:
            raise DataError(
                f"{origin} ranks {quoted(service)}, which is not a candidate of the episode {quoted(episode)}; use the "
                "services of the episode's context, or remove the row"
            )


def read_predictions(scope: EvaluationScope, files: Sequence[PredictionFile]) -> list[ResultRow]:
    """Return the rows of prediction files: test episodes of each fold, and calibration rows of training episodes."""
    if not files:
        return []
    datasets_text = " or ".join(f"{source.name} version {source.version}" for source in scope.sources)
    scope.check_single_tests("a prediction file has")
    rows: list[ResultRow] = []
    for file in files:
        if file.layout.task not in scope.settings.tasks:
            raise UsageError(
                f"{printable(file.path)} is for the task {file.layout.task}, which is not among --tasks "
                f"{','.join(scope.settings.tasks)}; add the task, or leave the file out"
            )
        check_predictions(file, scope.truths, datasets_text)
        rows += _FileRows(scope, file).rows()
    return rows


class _FileRows:
    """The rows of one file."""

    def __init__(self, scope: EvaluationScope, file: PredictionFile) -> None:
        self._scope, self._file, self._settings = scope, file, scope.settings
        # group by text, because categories may include episodes without rows
        groups = file.frame.groupby(file.frame["episode"].astype(str), sort=False)
        self._answers: dict[str, pd.DataFrame] = {str(episode): rows for episode, rows in groups}
        stated = str(file.frame["protocol"].iloc[0]) if "protocol" in file.frame else None
        is_detection = file.layout.task == "detection"
        self._protocol: Protocol = cast("Protocol", stated or ("detected" if is_detection else "oracle"))
        if not is_detection and self._protocol not in self._settings.protocols:
            raise UsageError(
                f"{printable(file.path)} is for the protocol {self._protocol}, which this evaluation leaves out; "
                "choose --protocol both"
            )

    def rows(self) -> Iterator[ResultRow]:
        labels = majority_labels(self._scope) if self._file.layout.task == "rca" else {}
        for fold in self._scope.folds:
            samples: dict[str, tuple[np.ndarray, np.ndarray]] = {}
            if self._file.layout is SCORES:
                trained = [episode for episode in fold.healthy_train if episode in self._answers]
                samples = {episode: self._sort_samples(episode) for episode in trained}
            threshold = self._set_threshold(fold, [scores for _, scores in samples.values() if len(scores)])
            for episode in fold.test:
                truth = self._scope.truths[episode]
                # the protocol "oracle" needs a known onset
                if self._protocol == "detected" or (truth.faulty and truth.onset_ns is not None):
                    yield self._build_row(fold, episode, self._protocol, threshold, labels.get(fold.number))
            for episode in samples if self._settings.calibrate else ():
                yield self._build_row(fold, episode, "calibration", threshold, None)

    def _set_threshold(self, fold: Fold, scores: Sequence[np.ndarray]) -> float | None:
        """Set the threshold of a fold from its healthy training scores; None if the file has thresholds."""
        if not self._file.sets_threshold_in_training:
            return None
        if not scores:
            raise DataError(
                f"{printable(self._file.path)} must have scores of training episodes without a fault, from which the "
                f'threshold is set, but has none (split "{self._scope.split}", fold {fold.number}); add them, or a '
                "column threshold with values fixed before the test"
            )
        return TrainQuantile().threshold([HealthyScores(scores=values, hours=0.0) for values in scores])

    def _sort_samples(self, episode: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted times after the reference, where detectors are scored, and their scores."""
        rows = self._answers[episode]
        times, scores = rows["time"].to_numpy(dtype=np.int64), rows["score"].to_numpy(dtype=float)
        order = np.argsort(times, kind="stable")
        order = order[times[order] > self._scope.truths[episode].reference_end_ns]
        return times[order], scores[order]

    def _build_row(
        self, fold: Fold, episode: str, protocol: Protocol, threshold: float | None, majority: tuple[str, str] | None
    ) -> ResultRow:
        file, truth = self._file, self._scope.truths[episode]
        answer = self._check_answer(truth, threshold) if episode in self._answers else None
        return ResultRow(
            baseline=file.name,
            kind="external",
            needs=("threshold",) if file.sets_threshold_in_training else (),
            settings=settings_hash({"baseline": file.name, **self._settings.for_rows()}),
            dataset=self._scope.source.name,
            version=self._scope.source.version,
            split=self._scope.split,
            fold=fold.number,
            task=file.layout.task,
            protocol=protocol,
            seed=0,
            status="missing" if answer is None else "ok",
            reason="" if answer is not None else f"{file.path.name} has no answer for this episode",
            alarm_ns=None if answer is None else answer.alarm_ns,
            answer=StoredAnswer("{}" if answer is None else answer.text),
            ranking={} if answer is None else answer.ranking,
            majority_label=majority,
            code=code_version(),
            method_code=file.code,
            libraries=library_versions(),
            truth=truth,
        )

    def _check_answer(self, truth: Truth, threshold: float | None) -> CheckedAnswer:
        layout, rows = self._file.layout, self._answers[truth.episode]
        if layout is SCORES:
            times, scores = self._sort_samples(truth.episode)
            limit = float(rows["threshold"].iloc[0]) if threshold is None else threshold
            detection = Detection.from_scores(times, scores, limit, consecutive=CONSECUTIVE)
            return check_detection(detection, truth.view_start_ns, truth.view_end_ns)
        if layout is ALARMS:
            alarm_ns = int(rows["alarm"].iloc[0])
            return CheckedAnswer(alarm_ns=None if alarm_ns < 0 else alarm_ns, text=json.dumps({"consecutive": None}))
        if layout is RANKINGS:
            ranked = rows.dropna(subset=["service"])
            ranking = dict(zip(ranked["service"].astype(str), ranked["score"].astype(float), strict=True))
            return check_ranking(Ranking(scores=ranking), truth.candidates)
        level, kind = (rows[name].astype(object).where(rows[name].notna(), None).iloc[0] for name in ("level", "type"))
        return check_diagnosis(Diagnosis(system_level=level, fault_type=kind))
