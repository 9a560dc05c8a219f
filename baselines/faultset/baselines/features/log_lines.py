"""Templates, shapes and counts of log lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.features.role_streams import Ints
from faultset.baselines.features.windows import TimeWindow
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.core.times import SECOND_NS
from faultset.datasets.log_masks import WILDCARD, mask_column, mask_numbers
from faultset.datasets.views import EpisodeView, read_table

# Matches everything variable in a line; the group captures only numbers that are parameters.
_VARIABLE = re.compile(
    r"""
      \d{1,3}(?:\.\d{1,3}){3}(?::\d+)?                                     # address, with port
    | \b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b               # UUID
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}\b                      # trace id, hash
    | (?<![\w.])([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=[a-zµ%]{0,2}(?![\w])) # number, with a short unit
    """,
    re.VERBOSE,
)


def split_variables(message: str) -> tuple[str, list[float]]:
    """Split a message into its constant text and its numeric parameters.

    Addresses and ids become wildcards too, but do not count as parameters.

    >>> split_variables("dial 10.0.0.7:6379 took 12.5ms after 3 tries, id 4bf92f3577b34da6")
    ('dial <*> took <*>ms after <*> tries, id <*>', [12.5, 3.0])
    """
    parts = _VARIABLE.split(message)
    if len(parts) == 1:
        return message, []
    return WILDCARD.join(parts[::2]), [float(number) for number in parts[1::2] if number is not None]


@dataclass
class Template:
    """Messages that differ only where the template has a wildcard."""

    id: int
    """Number that stays the same when words become wildcards."""
    words: list[str]
    count: int = 1

    @property
    def text(self) -> str:
        """Return the template as text."""
        return " ".join(self.words)


@dataclass
class _Leaf:
    templates: list[Template] = field(default_factory=list)
    changes: int = 0


class Drain:
    """Group messages into templates online (He, Zhu, Zheng, Lyu, ICWS 2017).

    Parameters
    ----------
    depth
        Levels of the tree, including the root, the message length and the leaves. With 4, messages of equal length
        are split by their first word.
    similarity
        Share of words that must match the template's words; wildcards match no word.
    max_children
        Maximum number of branches per node; further words share one branch.
    """

    def __init__(self, *, depth: int = 4, similarity: float = 0.4, max_children: int = 100) -> None:
        self.depth = depth
        self.similarity = similarity
        self.max_children = max_children
        self.templates: list[Template] = []
        self._leaves: dict[tuple[str, ...], _Leaf] = {}
        self._children: dict[tuple[str, ...], set[str]] = {}
        self._seen: dict[str, tuple[_Leaf, int, Template]] = {}

    def add(self, masked: str) -> int:
        """Return the id of the template of a masked message, and add the template if it is new."""
        cached = self._seen.get(masked)
        if cached is not None:
            leaf, changes, template = cached
            # If the leaf is unchanged, the search would return the same template.
            if leaf.changes == changes:
                template.count += 1
                return template.id
        words = masked.split()
        leaf = self._leaves.setdefault(self._choose_path(words), _Leaf())
        template = self._find_best(leaf.templates, words)
        if template is None:
            template = Template(len(self.templates), words)
            self.templates.append(template)
            leaf.templates.append(template)
            leaf.changes += 1
        else:
            template.count += 1
            merged = [old if old == new else WILDCARD for old, new in zip(template.words, words, strict=True)]
            if merged != template.words:
                template.words = merged
                leaf.changes += 1
        self._seen[masked] = (leaf, leaf.changes, template)
        return template.id

    def add_all(self, messages: Iterable[str]) -> tuple[list[int], list[list[float]]]:
        """Return the template id and the numeric parameters of each message, in order."""
        ids, parameters = [], []
        for message in messages:
            masked, numbers = split_variables(message)
            ids.append(self.add(masked))
            parameters.append(numbers)
        return ids, parameters

    def _choose_path(self, words: list[str]) -> tuple[str, ...]:
        path: tuple[str, ...] = (str(len(words)),)
        for word in words[: max(0, self.depth - 3)]:
            branch = WILDCARD if any(letter.isdigit() for letter in word) else word
            children = self._children.setdefault(path, set())
            if branch not in children and len(children) >= self.max_children:
                branch = WILDCARD
            children.add(branch)
            path = (*path, branch)
        return path

    def _find_best(self, templates: list[Template], words: list[str]) -> Template | None:
        best, best_match = (self.similarity, -1), None
        for template in templates:
            matches = sum(old == new != WILDCARD for old, new in zip(template.words, words, strict=True))
            rank = (matches / len(words) if words else 1.0, template.words.count(WILDCARD))
            if rank > best:
                best, best_match = rank, template
        return best_match


KEYWORDS = "error|fail|exception|problem|timeout|refused|fatal|panic"
BAD_LEVELS = ("error", "fatal")


Name = TypeVar("Name", bound=Hashable)


def log_excess(counts: Mapping[Name, float], reference: Mapping[Name, float], length_ratio: float) -> dict[Name, float]:
    """Return how far counts exceed the reference, scaled by the ratio of window lengths.

    >>> log_excess({"cart": 2, "front": 1}, {"front": 1}, 0.5)
    {'cart': 2.0, 'front': 0.5}
    """
    return {name: max(0.0, count - length_ratio * reference.get(name, 0.0)) for name, count in counts.items()}


def select_error_lines(episode: EpisodeView, *, levels: bool = True) -> pa.Table:
    """Return the lines with a keyword and, if `levels` is set, the lines at level error or fatal."""
    columns = ("time", "service", "pod", "message")

    def select() -> pa.Table:
        logs = read_table(episode, "logs", (*columns, "level") if levels else columns)
        hit = match_keywords(episode)
        if levels:
            level = logs["level"].cast("string")
            for bad in BAD_LEVELS:
                hit = pc.or_kleene(hit, pc.equal(level, bad))  # type: ignore[attr-defined]
        return logs.select(list(columns)).filter(hit)

    return episode.once(("error lines", levels), select)


def match_keywords(episode: EpisodeView) -> pa.ChunkedArray:
    """Return for each line of an episode whether it contains a keyword."""

    def match() -> pa.ChunkedArray:
        messages = read_table(episode, "logs", ("message",))["message"]
        return pc.match_substring_regex(messages, KEYWORDS, ignore_case=True)  # type: ignore[attr-defined]

    return episode.once("lines with a keyword", match)


def error_line_excess(lines: pa.Table, time_window: TimeWindow) -> dict[str, float]:
    """Count error lines per service in a time window, beyond the rate in its healthy window."""
    return log_excess(*error_line_counts(lines, time_window), time_window.length_ratio)


def error_line_counts(lines: pa.Table, time_window: TimeWindow) -> tuple[dict[str, float], dict[str, float]]:
    """Count error lines per service in a time window and in its healthy window."""
    recent, healthy = counts_by(lines, time_window, ("service",))
    return {service: count for (service,), count in recent.items()}, {
        service: count for (service,), count in healthy.items()
    }


def counts_by(
    lines: pa.Table, time_window: TimeWindow, owner: tuple[str, ...]
) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """Count lines in a time window and in its healthy window by the columns `owner`; skip lines with nulls in them."""
    times = lines["time"].cast("int64").to_numpy()
    owners = list(zip(*(lines[column].cast("string").to_pylist() for column in owner), strict=True))
    counts: list[dict[tuple[str, ...], float]] = []
    for start, end in (
        (time_window.start_ns, time_window.end_ns),
        (time_window.healthy_start_ns, time_window.healthy_end_ns),
    ):
        number = Counter(owners[row] for row in np.flatnonzero((times >= start) & (times < end)))
        counts.append({names: float(number[names]) for names in sorted(key for key in number if None not in key)})
    return counts[0], counts[1]


BEGINNINGS = (64, 40, 24, 16)
PROBE_SIZE = 4000
MAX_DISTINCT = 1000
MAX_SHAPES = 2000


@dataclass(frozen=True, kw_only=True)
class ShapeCounts:
    """Lines of candidate services on a grid over the view."""

    shapes: tuple[tuple[str, str], ...]
    """(service, beginning of the line with masked numbers) of each column."""
    ends_ns: np.ndarray
    """[T] end of each step."""
    counts: Matrix
    """[T, L]"""


def mask_beginning(beginning: str, length: int) -> str:
    """Return the beginning of a line with masked numbers and ids, without a truncated last word.

    >>> mask_beginning("server.go:124 > in Nearby id=ad32e2", 35)
    'server.go:<*> > in Nearby'
    >>> mask_beginning("server.go:124 > in Nearby", 35)
    'server.go:<*> > in Nearby'
    """
    is_complete = len(beginning) < length
    return mask_numbers(beginning if is_complete else beginning.rpartition(" ")[0] or beginning)


def count_shapes(episode: EpisodeView, step_s: float) -> ShapeCounts:
    """Count lines by service, shape and step; keep the most frequent shapes only."""
    return episode.once(("shape counts", step_s), lambda: _count_shapes(episode, step_s))


def _count_shapes(episode: EpisodeView, step_s: float) -> ShapeCounts:
    start_ns, end_ns = episode.window
    step_ns = round(step_s * SECOND_NS)
    steps = -(-(end_ns - start_ns) // step_ns)
    names = tuple(sorted(episode.services))
    table = read_table(episode, "logs", ("time", "service", "message"))
    time = table["time"].cast("int64").to_numpy()
    owner = pc.index_in(table["service"].cast("string"), value_set=pa.array(names, pa.string()))  # type: ignore[attr-defined]
    owner = owner.fill_null(-1).to_numpy().astype(np.int64)
    coded, length = _shorten_until_repeated(table["message"])
    texts, code = np.unique(
        [mask_beginning(text, length) for text in coded.dictionary.to_pylist()], return_inverse=True
    )
    shape = code[coded.indices.to_numpy(zero_copy_only=False)] if len(texts) else np.empty(0, dtype=np.int64)
    rows = (time >= start_ns) & (time < end_ns) & (owner >= 0)
    column = owner[rows] * max(1, len(texts)) + shape[rows]
    columns, _, index = distinct(column)
    lines = np.bincount(index, minlength=len(columns))
    row = (time[rows] - start_ns) // step_ns
    counts = np.bincount(row * len(columns) + index, minlength=steps * len(columns)).reshape(steps, -1)
    frequent = np.sort(np.argsort(-lines, kind="stable")[:MAX_SHAPES])
    return ShapeCounts(
        shapes=tuple((names[code // len(texts)], str(texts[code % len(texts)])) for code in columns[frequent].tolist()),
        ends_ns=np.minimum(start_ns + step_ns * np.arange(1, steps + 1), end_ns),
        counts=counts[:, frequent].astype(float),
    )


def _shorten_until_repeated(messages: pa.ChunkedArray) -> tuple[pa.DictionaryArray, int]:
    """Shorten lines until they repeat, and return them with the maximum length.

    Masking every line separately would take too long.
    """
    probe = messages.take(np.arange(0, len(messages), max(1, len(messages) // PROBE_SIZE)))
    length = BEGINNINGS[-1]
    for longer in BEGINNINGS:
        if len(_encode_texts(probe, longer).dictionary) <= MAX_DISTINCT:
            length = longer
            break
    return _encode_texts(messages, length), length


def _encode_texts(messages: pa.ChunkedArray, length: int) -> pa.DictionaryArray:
    beginnings = pc.utf8_slice_codeunits(messages, 0, length)  # type: ignore[attr-defined]
    coded = beginnings.combine_chunks().dictionary_encode()
    return coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded


@dataclass(frozen=True, kw_only=True)
class TemplateLines:
    """Log lines of candidates ordered by time."""

    times_ns: Ints
    services: Ints
    """Index into the sorted candidates."""
    templates: Ints
    """Template of each line, numbered by first appearance."""
    texts: tuple[str, ...]
    """Text of each template."""


def read_template_lines(episode: EpisodeView) -> TemplateLines:
    """Read an episode's lines with their templates."""

    def read() -> TemplateLines:
        return template_lines(read_table(episode, "logs", ("time", "service", "message")), episode.services)

    return episode.once("template lines", read)


def template_lines(table: pa.Table, services: tuple[str, ...]) -> TemplateLines:
    """Return the lines of a logs table with their templates.

    Numbers and ids are masked first. Drain then groups the distinct texts by first appearance, so that templates do not
    depend on later lines.
    """
    owner = pc.index_in(table["service"].cast(pa.string()), value_set=pa.array(sorted(services), pa.string()))  # type: ignore[attr-defined]
    code = owner.fill_null(-1).to_numpy().astype(np.int64)
    times = table["time"].cast(pa.int64()).to_numpy()
    encoded = mask_column(table["message"]).combine_chunks().dictionary_encode()
    chosen = np.flatnonzero(code >= 0)
    # Lines with the same time keep their order in the table, per service.
    chosen = chosen[np.lexsort([chosen, code[chosen], times[chosen]])]
    texts = encoded.indices.to_numpy()[chosen].astype(np.int64)
    text_codes, first, index = distinct(texts)
    order = np.argsort(first)
    drain = Drain()
    words = encoded.dictionary.take(pa.array(text_codes[order])).to_pylist()
    group = np.empty(len(text_codes), dtype=np.int64)
    group[order] = [drain.add(text) for text in words]
    return TemplateLines(
        times_ns=times[chosen],
        services=code[chosen],
        templates=group[index],
        texts=tuple(template.text for template in drain.templates),
    )
