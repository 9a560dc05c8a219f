"""How many log lines of each kind a service writes in each step, told by how lines begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.api.tables import read_table
from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.scaling import Matrix
from faultset.core.times import SECOND_NS
from faultset.datasets.log_masks import masked

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

BEGINNINGS = (64, 40, 24, 16)
PROBED = 4000
MOST_DIFFERENT = 1000
MOST_SHAPES = 2000


@dataclass(frozen=True, kw_only=True)
class ShapeCounts:
    """Lines of candidate services on a grid over the view."""

    shapes: tuple[tuple[str, str], ...]
    """(service, beginning of the line with numbers masked) of each column."""
    ends_ns: np.ndarray
    """[T] end of each step."""
    counts: Matrix
    """[T, L]"""


def shape_of(beginning: str, length: int) -> str:
    """First words of a line with numbers and hexadecimal ids masked; a word that may be cut off is dropped.

    >>> shape_of("server.go:124 > in Nearby id=ad32e2", 35)
    'server.go:<*> > in Nearby'
    >>> shape_of("server.go:124 > in Nearby", 35)
    'server.go:<*> > in Nearby'
    """
    whole = len(beginning) < length
    return masked(beginning if whole else beginning.rpartition(" ")[0] or beginning)


def shape_counts(episode: EpisodeView, step_s: float) -> ShapeCounts:
    """Count lines by service, shape and step; the rarest shapes are left out where there are thousands."""
    return episode.once(("shape counts", step_s), lambda: _shape_counts(episode, step_s))


def _shape_counts(episode: EpisodeView, step_s: float) -> ShapeCounts:
    start_ns, end_ns = episode.window
    step_ns = round(step_s * SECOND_NS)
    steps = -(-(end_ns - start_ns) // step_ns)
    names = tuple(sorted(episode.services))
    table = read_table(episode, "logs", ("time", "service", "message"))
    time = table["time"].cast("int64").to_numpy()
    owner = pc.index_in(table["service"].cast("string"), value_set=pa.array(names, pa.string()))  # type: ignore[attr-defined]
    owner = owner.fill_null(-1).to_numpy().astype(np.int64)
    coded, length = _beginnings(table["message"])
    texts, code = np.unique([shape_of(text, length) for text in coded.dictionary.to_pylist()], return_inverse=True)
    shape = code[coded.indices.to_numpy(zero_copy_only=False)] if len(texts) else np.empty(0, dtype=np.int64)
    kept = (time >= start_ns) & (time < end_ns) & (owner >= 0)
    column = owner[kept] * max(1, len(texts)) + shape[kept]
    columns, _, place = distinct(column)
    lines = np.bincount(place, minlength=len(columns))
    row = (time[kept] - start_ns) // step_ns
    counts = np.bincount(row * len(columns) + place, minlength=steps * len(columns)).reshape(steps, -1)
    frequent = np.sort(np.argsort(-lines, kind="stable")[:MOST_SHAPES])
    return ShapeCounts(
        shapes=tuple(
            (names[found // len(texts)], str(texts[found % len(texts)])) for found in columns[frequent].tolist()
        ),
        ends_ns=np.minimum(start_ns + step_ns * np.arange(1, steps + 1), end_ns),
        counts=counts[:, frequent].astype(float),
    )


def _beginnings(messages: pa.ChunkedArray) -> tuple[pa.DictionaryArray, int]:
    """Cut lines short enough that they repeat: masking numbers in every line anew would cost too much."""
    probe = messages.take(np.arange(0, len(messages), max(1, len(messages) // PROBED)))
    length = BEGINNINGS[-1]
    for longer in BEGINNINGS:
        if len(_coded(probe, longer).dictionary) <= MOST_DIFFERENT:
            length = longer
            break
    return _coded(messages, length), length


def _coded(messages: pa.ChunkedArray, length: int) -> pa.DictionaryArray:
    begun = pc.utf8_slice_codeunits(messages, 0, length)  # type: ignore[attr-defined]
    coded = begun.combine_chunks().dictionary_encode()
    return coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
