"""What the objects of an episode were seen to be, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.baselines.api.tables import read_frame
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.views import EpisodeView

SAMPLING_NS = 10 * SECOND_NS
"""Between two looks at an object that does not change."""
_OBJECTS = ("time", "kind", "name", "service", "state")


def read_object_states(episode: EpisodeView) -> pd.DataFrame:
    """Return the observed states of the objects of the candidates."""
    frame = read_frame(episode, "objects", _OBJECTS)
    return frame[frame["service"].isin(episode.services)]


@dataclass(frozen=True, kw_only=True)
class ObjectHistory:
    """What one object was seen to be, in order of time."""

    kind: str
    name: str
    service: str
    times_ns: list[int]
    texts: list[str]


def object_histories(frame: pd.DataFrame) -> Iterator[ObjectHistory]:
    """Give the rows of an objects table object by object, sorted by kind, name and service."""
    if frame.empty:
        return
    number = frame.groupby(["kind", "name", "service"], observed=True, sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    kinds, names, services = (frame[column].astype(object).to_numpy() for column in ("kind", "name", "service"))
    times, texts = frame["time"].to_numpy(), frame["state"].to_numpy()
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        yield ObjectHistory(
            kind=str(kinds[rows[0]]),
            name=str(names[rows[0]]),
            service=str(services[rows[0]]),
            times_ns=times[rows].tolist(),
            texts=texts[rows].tolist(),
        )
