"""Checks of prediction files against the dataset that they answer about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.evaluators.predictions.layouts import ALARMS, RANKINGS, SCORES
from faultset.evaluators.results.rows import PROTOCOLS

if TYPE_CHECKING:
    import pandas as pd

    from faultset.evaluators.predictions.files import PredictionFile
    from faultset.evaluators.results.truth import Truth


def check_predictions(file: PredictionFile, truths: Mapping[str, Truth], dataset: str) -> None:
    """Check every row of a file against the episodes of a dataset.

    Parameters
    ----------
    truths
        Episode -> what is true of it; only views and candidates are looked at.
    dataset
        Name and version, for the sentence.

    Raises
    ------
    DataError
        An episode or candidate is unknown, a row occurs twice, a time lies outside of its view, or a value is missing.
    """
    frame, origin = file.frame, printable(file.path)
    if frame["episode"].isna().any():
        raise DataError(f"{origin} has {int(frame['episode'].isna().sum())} rows without an episode; leave them out")
    unknown = sorted(set(frame["episode"].unique()) - set(truths))
    if unknown:
        raise DataError(
            f"{origin} answers about {len(unknown)} episodes that {dataset} does not have (first: "
            f"{quoted(unknown[0])}); predict this version, or name the one that was predicted with --version"
        )
    _check_repeats(file, origin)
    if file.layout is SCORES:
        _check_numbers(frame, ("score", "threshold"), origin)
        _check_times(frame, "time", truths, origin)
    elif file.layout is ALARMS:
        _check_times(frame[frame["alarm"] >= 0], "alarm", truths, origin)
    elif file.layout is RANKINGS:
        _check_candidates(frame, truths, origin)
    if "protocol" in frame:
        odd = set(frame["protocol"].unique()) - set(PROTOCOLS)
        if odd or frame["protocol"].nunique() != 1:
            found = ", ".join(quoted(str(one)) for one in frame["protocol"].unique().tolist()[:3])
            raise DataError(
                f"column protocol of {origin} holds {found}, wanted is one of {', '.join(PROTOCOLS)} in all rows; "
                "write one file for each"
            )


def _check_repeats(file: PredictionFile, origin: str) -> None:
    frame, layout = file.frame, file.layout
    repeated = frame.duplicated(list(layout.key))
    if repeated.any():
        row = frame[repeated].iloc[0]
        key = ", ".join(f"{name} {quoted(_plain(row[name]))}" for name in layout.key)
        raise DataError(
            f"{origin} has {int(repeated.sum())} rows that repeat another (first: {key}); keep one row for each "
            f"{' and '.join(layout.key)}"
        )
    for name in layout.constant:
        if name in frame:
            counts = frame.groupby("episode", observed=True)[name].nunique()
            if (counts > 1).any():
                raise DataError(
                    f"column {name} of {origin} has {int(counts.max())} values in the episode "
                    f"{quoted(str(counts.idxmax()))}, wanted is one; a {name} may not change within an episode"
                )


def _check_numbers(frame: pd.DataFrame, names: tuple[str, ...], origin: str) -> None:
    for name in names:
        if name in frame and frame[name].isna().any():
            raise DataError(
                f"column {name} of {origin} has {int(frame[name].isna().sum())} empty cells; leave those rows out, or "
                "give them a number"
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
            f"column {name} of {origin} has {int(outside.sum())} of {len(frame)} times outside of the episode's view "
            f"(first: {times[first]} in {quoted(episodes.iloc[first])}, whose view is {start[first]} to {end[first]}); "
            "write UTC nanoseconds of the instant at which the sample is complete"
        )


def _check_candidates(frame: pd.DataFrame, truths: Mapping[str, Truth], origin: str) -> None:
    nobody = frame["service"].isna()
    if (frame["score"].isna() != nobody).any():
        raise DataError(
            f"{origin} has rows with a service and no score, or a score and no service; fill in both, or leave both "
            "empty where the model names nobody"
        )
    size = frame.groupby("episode", observed=True)["episode"].transform("size")
    if (nobody & (size > 1)).any():
        raise DataError(
            f"{origin} both names services and names nobody in the episode "
            f"{quoted(str(frame.loc[nobody & (size > 1), 'episode'].iloc[0]))}; keep one of them"
        )
    pairs = frame.loc[~nobody, ["episode", "service"]].drop_duplicates()
    for episode, service in zip(pairs["episode"], pairs["service"], strict=True):
        if service not in truths[episode].candidates:
            raise DataError(
                f"{origin} ranks {quoted(service)}, which is no candidate of the episode {quoted(episode)}; name the "
                "services of the episode's context, or leave the row out"
            )


def _plain(value: object) -> object:
    return int(value) if isinstance(value, np.integer) else value
