"""Import series of server machines: SMD as published by OmniAnomaly, and SMD and ASD as published by InterFusion.

The data sets have no times; their authors state the sampling steps. The test part directly follows the training part.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.printable import first_line, quoted
from faultset.core.regular_files import read_regular
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.contract import Case, DataIssue, ForeignRecording, ImportFormat, report_issues
from faultset.datasets.imports.formats.labelled_series import (
    AnomalyWindow,
    LabelledSeries,
    Numbers,
    build_times,
    check_finite,
    find_anomalies,
    parse_labels,
    read_numbers,
    read_table,
)

_PICKLE_BYTES = 2 << 30
_MAX_INSTRUCTIONS = 1_000
_CODES = frozenset("b1 u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split())
"""numpy's codes of the accepted types of numbers."""
_INSTRUCTIONS = frozenset(
    "PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL REDUCE BUILD PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES BINBYTES8 SHORT_BINBYTES BYTEARRAY8 UNICODE BINUNICODE "
    "SHORT_BINUNICODE".split()
)


def read_array(path: Path) -> np.ndarray:
    """Return the array of numbers in a pickle, as doubles; raise DataError for anything else."""
    content = read_regular(path, limit_bytes=_PICKLE_BYTES)
    try:
        _check_instructions(content)
        value = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
        if not isinstance(value, _Array):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")
        return value.build()
    except Exception as error:  # damaged pickles raise errors of any class
        reason = first_line(error)
        raise DataError(
            f"{path} must be a pickle of one numpy array of numbers, but cannot be read as one ({reason}); restore the "
            "file"
        ) from error


def _check_instructions(content: bytes) -> None:
    """Raise UnpicklingError for an instruction that arrays do not need."""
    for number, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if instruction.name not in _INSTRUCTIONS or number >= _MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"it has the instruction {instruction.name}")
        is_index = instruction.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if is_index and (argument or 0) >= _MAX_INSTRUCTIONS:  # the reader would reserve memory up to that index
            raise pickle.UnpicklingError(f"it stores a value at index {argument}")


class _DType:
    """Replaces `numpy.dtype`."""

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        self._code, self._order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = state[1]

    def build(self) -> np.dtype:
        if self._code not in _CODES or self._order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"its items have the type {self._order}{self._code}")
        return np.dtype(self._order + self._code)


class _Array:
    """Replaces `numpy.ndarray`."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self._shape, self._kind, self._is_fortran, self._content = state

    def build(self) -> np.ndarray:
        kind, content = self._kind, self._content
        if isinstance(content, str):  # written by Python 2
            content = content.encode("latin1")
        if not isinstance(kind, _DType) or not isinstance(content, bytes | bytearray):
            raise pickle.UnpicklingError("its items must be numbers")
        values = np.frombuffer(content, kind.build())
        return values.reshape(self._shape, order="F" if self._is_fortran else "C").astype(np.float64)


def _new_array(subtype: object, shape: object, code: object) -> _Array:
    """Replace `numpy.core.multiarray._reconstruct`, which reserves memory for the shape."""
    return _Array()


def _array_of_buffer(content: object, kind: object, shape: object, order: object) -> _Array:
    """Replace `numpy.core.numeric._frombuffer`."""
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", content))
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Replace `_codecs.encode`, with which Python 3 writes bytes for Python 2."""
    return text.encode("latin1")


_REPLACEMENTS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _new_array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _array_of_buffer for core in ("core", "_core")},
}


class _ArrayUnpickler(pickle.Unpickler):
    """Accepts only the names in `_REPLACEMENTS`."""

    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return _REPLACEMENTS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it calls {module}.{name}") from None


STEP_S, ASD_STEP_S = 60.0, 300.0
_ASD = re.compile(r"omi-\d+")
_PICKLE = re.compile(r"(.+)_(train|test|test_label)\.pkl")
_PARTS = ("train", "test", "test_label")
_SEGMENT = re.compile(r"(\d+)-(\d+):((?:\d+,)*\d+),?", re.ASCII)
_LIMIT_BYTES = 16 << 20


class SMDImport(ImportFormat):
    """A folder with `<machine>_train.pkl` and others, or folders train, test and test_label of text files."""

    name = "smd"
    title = "SMD and ASD"
    layout = (
        ("machine_train.pkl or train/machine.txt", r"(_train\.pkl|(^|/)train/[^/]+\.txt)$"),
        ("machine_test.pkl or test/machine.txt", r"(_test\.pkl|(^|/)test/[^/]+\.txt)$"),
        ("machine_test_label.pkl or test_label/machine.txt", r"(_test_label\.pkl|(^|/)test_label/[^/]+\.txt)$"),
    )
    weakness = (
        "Metrics have no names, units or times; the import counts steps of a minute (ASD: five minutes) from 2020. "
        "Values are scaled to the range of the training part. Anomalies have no cause."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        root = unpack(path)
        machines: dict[tuple[Path, ...], str] = {}
        for file in sorted(root.rglob("*.pkl")):
            match = _PICKLE.fullmatch(file.name)
            if match:
                machines[tuple(file.with_name(f"{match[1]}_{suffix}.pkl") for suffix in _PARTS)] = match[1]
        for folder in sorted(root.rglob("test_label")):
            for file in sorted({*folder.glob("*.txt"), *folder.with_name("test").glob("*.txt")}):
                machines[tuple(folder.with_name(name) / file.name for name in _PARTS)] = file.stem
        if not machines:
            raise DataError(f"{path} holds no machine; give the folder with its files, such as machine-1-1_train.pkl")
        return [Case(key=machine, paths=files) for files, machine in sorted(machines.items())]

    def load(self, case: Case) -> ForeignRecording:
        machine = case.key
        train, test, label = case.paths
        for file in case.paths:
            if not file.is_file():
                raise DataError(f"{machine} must have {file.name}, but {file.parent} lacks it; restore the file")
        before, after = _read_matrix(train), _read_matrix(test)
        if before.shape[1] != after.shape[1]:
            raise DataError(
                f"{train} and {test} must have the same metrics, but have {before.shape[1]} and {after.shape[1]}; "
                "restore the files"
            )
        labels = parse_labels(_read_labels(label), len(after), str(label))
        app, step_s = ("asd", ASD_STEP_S) if _ASD.fullmatch(machine) else ("smd", STEP_S)
        times_ns = build_times(len(before) + len(after), step_s)
        step_ns = round(step_s * SECOND_NS)
        windows = find_anomalies(np.concatenate([np.zeros(len(before), dtype=bool), labels]), times_ns, step_ns)
        inputs, notes = case.paths, _notes_file(test)
        if notes.is_file():
            inputs = (*inputs, notes)
            windows = _add_metrics(windows, notes, times_ns[len(before) :], after.shape[1])
            report_issues(partial(_find_unexplained, windows, case.key))
        values = np.concatenate([before, after])
        return LabelledSeries(
            app=app,
            service=machine,
            times_ns=times_ns,
            metrics={metric_name(number): values[:, number - 1] for number in range(1, values.shape[1] + 1)},
            step_ns=step_ns,
            anomalies=windows,
            training_rows=len(before),
            inputs=inputs,
        ).to_recording()


def metric_name(number: int) -> str:
    """Return the name of a metric, counted from 1."""
    return f"metric_{number:02d}"


def _notes_file(test: Path) -> Path:
    """Return the path of the file that names the metrics of each anomaly."""
    name = test.stem.removesuffix("_test") if test.suffix == ".pkl" else test.stem
    return test.parent.parent / "interpretation_label" / f"{name}.txt"


def _read_matrix(path: Path) -> Numbers:
    """Return the samples of a file, [time, metric]."""
    if path.suffix == ".pkl":
        values = read_array(path)
    else:
        columns = read_table(path, header=False)
        values = np.stack([read_numbers(columns, name, path) for name in columns], axis=1)
    if values.ndim != 2 or min(values.shape) < 1:
        raise DataError(f"{path} must have rows of metrics, but has the shape {values.shape}; restore the file")
    return check_finite(values, str(path))


def _read_labels(path: Path) -> Numbers:
    if path.suffix == ".pkl":
        return read_array(path)
    columns = read_table(path, header=False)
    if len(columns) > 1:
        raise DataError(f"{path} must have one label in each row, but has {len(columns)}; restore the file")
    return read_numbers(columns, "1", path)


def _add_metrics(
    windows: Sequence[AnomalyWindow], notes: Path, times_ns: np.ndarray, metrics: int
) -> list[AnomalyWindow]:
    """Return the anomalies with the metrics that show them."""
    metrics_by_window = [set[int]() for _ in windows]
    lines = read_regular(notes, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _SEGMENT.fullmatch(line.strip())
        first, last = (int(match[1]), int(match[2])) if match else (1, 0)
        shown = {*map(int, match[3].split(","))} if match else set[int]()
        if not first <= last < len(times_ns) or not all(1 <= metric <= metrics for metric in shown):
            raise DataError(
                f"line {number} of {notes} must be START-END:METRICS within {len(times_ns)} steps and {metrics} "
                f"metrics, but is {quoted(line[:60])}; restore the file"
            )
        for window, window_metrics in zip(windows, metrics_by_window, strict=True):
            if window.start_ns <= times_ns[last] and times_ns[first] < window.end_ns:
                window_metrics |= shown
    return [
        window._replace(parameters={"metrics": [metric_name(metric) for metric in sorted(shown)]} if shown else {})
        for window, shown in zip(windows, metrics_by_window, strict=True)
    ]


def _find_unexplained(windows: Sequence[AnomalyWindow], location: str) -> Iterator[DataIssue]:
    count = sum(not window.parameters for window in windows)
    if count:
        problem = f"{count} of {len(windows)} anomalies have no metrics in the interpretation labels."
        yield DataIssue("note", location, problem, "They are imported without metrics.")
