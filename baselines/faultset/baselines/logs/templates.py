"""Log lines as numbers: when, from whom, by which template. Made once per table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.api.tables import read_table
from faultset.baselines.features.step_counts import Ints
from faultset.baselines.logs.drain import Drain
from faultset.baselines.stats.distinct_numbers import distinct
from faultset.datasets.log_masks import masked_column

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class TemplateLines:
    """Lines of candidate services in order of time."""

    times_ns: Ints
    services: Ints
    """Place in the sorted candidates."""
    templates: Ints
    """Template numbers, in the order of their first line."""
    texts: tuple[str, ...]
    """Text of each template."""


def read_template_lines(episode: EpisodeView) -> TemplateLines:
    """Read an episode's lines and find their templates."""

    def make() -> TemplateLines:
        return template_lines(read_table(episode, "logs", ("time", "service", "message")), episode.services)

    return episode.once("template lines", make)


def template_lines(table: pa.Table, services: tuple[str, ...]) -> TemplateLines:
    """Find the template of each line of a logs table.

    Numbers and ids are masked first, which leaves few texts; Drain groups these in the order in which they first
    appear, so that a template does not depend on later lines.
    """
    owner = pc.index_in(table["service"].cast(pa.string()), value_set=pa.array(sorted(services), pa.string()))  # type: ignore[attr-defined]
    code = owner.fill_null(-1).to_numpy().astype(np.int64)
    times = table["time"].cast(pa.int64()).to_numpy()
    encoded = masked_column(table["message"]).combine_chunks().dictionary_encode()
    chosen = np.flatnonzero(code >= 0)
    # Lines of one instant keep the order in which the table holds them, service by service.
    chosen = chosen[np.lexsort([chosen, code[chosen], times[chosen]])]
    texts = encoded.indices.to_numpy()[chosen].astype(np.int64)
    found, first, place = distinct(texts)
    order = np.argsort(first)
    drain = Drain()
    words = encoded.dictionary.take(pa.array(found[order])).to_pylist()
    group = np.empty(len(found), dtype=np.int64)
    group[order] = [drain.add(text) for text in words]
    return TemplateLines(
        times_ns=times[chosen],
        services=code[chosen],
        templates=group[place],
        texts=tuple(template.text for template in drain.templates),
    )
