"""Prediction files for recordings: divide their scores into windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.datasets.dataset import Dataset
from faultset.evaluators.predictions.files import SCORES, PredictionFile
from faultset.evaluators.recordings.detection_plan import DetectionPlan


def is_about_recordings(file: PredictionFile, dataset: Dataset) -> bool:
    """Return whether the first row of a file names a recording in its column `episode`."""
    return not file.frame.empty and str(file.frame["episode"].iloc[0]) in dataset.recording_files


def divide_into_windows(file: PredictionFile, plan: DetectionPlan) -> PredictionFile:
    """Convert scores of recordings into scores of their windows; scores outside windows are left out.

    Raises
    ------
    DataError
        The file lacks scores, or names an unknown recording.
    """
    dataset = f"{plan.dataset.root} version {plan.dataset.version}"
    if file.layout is not SCORES:
        raise DataError(
            f"{printable(file.path)} is about recordings and must have the columns episode, time and score, but has "
            f"{', '.join(map(str, file.frame.columns))}; write a score for each step"
        )
    names = file.frame["episode"].astype(str)
    unknown = sorted({*names} - plan.recordings.keys())
    if unknown:
        raise DataError(
            f"{printable(file.path)} names {printable(unknown[0])}, which is not a recording of {dataset}; remove "
            "these rows"
        )
    return replace(file, frame=pd.concat(_divide_scores(file.frame, names, plan), ignore_index=True))


def _divide_scores(frame: pd.DataFrame, names: pd.Series, plan: DetectionPlan) -> Iterable[pd.DataFrame]:
    by_recording = dict(list(frame.groupby(names, sort=False)))
    yield frame.iloc[:0]
    for episode, window in plan.windows.items():
        rows = by_recording.get(window.recording)
        if rows is not None:
            inside = (rows["time"] > window.start_ns) & (rows["time"] <= window.end_ns)
            yield rows[inside].assign(episode=episode)
