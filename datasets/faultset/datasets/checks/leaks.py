"""Search all texts of a view for secrets of the ground truth.

Secrets are the names of faults (however their words are joined), words of injectors, and texts and numbers from the
journal (arguments, undo operations, state) or the fault's parameters. Texts that the fault shows to operators
(`visible` in the journal) and names of objects in the telemetry are not secret.

Words of injectors are always leaks. A view is compared with up to eight views of other faults, of the same application
if there are any. These occurrences are not leaks:

- a fault's name in a column that also contains it in at least half of the other views
- a text or number from the journal or the parameters that occurs anywhere in at least half of the other views
- a text that a ConfigMap or the state of an object contained before the injection
- a number at a position where otherwise identical texts have many different numbers

In imported datasets, findings are warnings, because the source cannot be changed, and names of metrics are ignored
(RCAEval has a fault "cpu" and a metric "cpu").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from faultset.datasets.checks import Finding, Severity
from faultset.datasets.format.context import CONTEXT_FILE, IMPORTED
from faultset.datasets.format.episodes import EPISODES, table_file
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

pc: Any = pyarrow.compute
# pyarrow creates its compute functions at import, so type checkers cannot see them

MIN_NUMBERS = 20
"""If otherwise identical texts contain at least this many different numbers, one of them reveals nothing."""

_DIGITS = "[0-9]+"


def is_coincidence(number: str, values: pa.Array, example: str) -> bool:
    """Return whether texts like `example` have many other numbers at the positions of `number`; False if it is no
    number.
    """
    if not re.fullmatch(_DIGITS, number):
        return False
    indices = [index for index, match in enumerate(re.finditer(_DIGITS, example)) if match.group() == number]
    shape = re.sub(_DIGITS, "#", example)
    similar = values.filter(pc.equal(pc.replace_substring_regex(values, _DIGITS, "#"), shape)).to_pylist()
    rows = [re.findall(_DIGITS, text) for text in similar]
    return bool(indices) and all(len({numbers[index] for numbers in rows}) >= MIN_NUMBERS for index in indices)


INJECTOR_WORDS = ("chaos", "inject", "faultset-control", "faultset-agent", "faultset-load", "impairment", "stress-ng")
"""Words of injectors; searched in any letter case and inside longer words."""

_NAMING_COLUMNS = ("service", "pod", "container", "kind", "name", "reason", "endpoint", "metric")
_MARKS = ("intent", "done", "failed", "undone", "note")
_METRIC_NAMES = (("context", ""), ("metrics", "metric"))
_MIN_LENGTH = 4
_MAX_OTHERS = 8
_CONFIGURATION = ("objects", "data")
_STATE = ("objects", "state")
_TRUTH_TEXT = "a text or number from the journal or the fault's parameters"
_STATE_KEY = r'"[A-Za-z]+":'
Texts = dict[tuple[str, str], pa.Array]
"""(table, column) -> distinct strings; the context is ("context", "")."""


@dataclass(frozen=True)
class _Needle:
    text: str
    pattern: str
    description: str
    dismissible: bool


def leak_findings(
    views: Mapping[str, EpisodeView],
    labels: Mapping[str, Label],
    journals: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[Finding]:
    """Return one finding per episode, column and leaked text."""
    faults = sorted({name for label in labels.values() for name in label.fault_names})
    names = [_build_fault_needle(fault) for fault in faults] + [_build_word_needle(word) for word in INJECTOR_WORDS]
    library = _Library(views, labels)
    findings = []
    for episode in sorted(views):
        texts = view_texts(views[episode])
        secrets = journal_secrets(journals[episode], labels[episode].parameters)
        needles = names + [_build_secret_needle(secret) for secret in sorted(secrets - _list_public_names(texts))]
        imported = views[episode].context.platform == IMPORTED
        for needle, column, example in _find_hits(texts, needles):
            if imported and column in _METRIC_NAMES:
                continue
            is_vocabulary = needle.dismissible and (
                _existed_before(views[episode], needle, column)
                or is_coincidence(needle.text, texts[column], example)
                or library.is_vocabulary(needle, column if needle in names else None, episode)
            )
            if is_vocabulary is None and needle not in names:
                findings.append(_build_finding(episode, needle, column, example, "warning", _NO_COMPARISON))
            elif not is_vocabulary:
                findings.append(_build_finding(episode, needle, column, example, "warning" if imported else "error"))
    return findings


def view_texts(view: EpisodeView) -> Texts:
    """Return the distinct strings of a view by table and column."""
    texts: Texts = {("context", ""): pa.array([view.context.to_json()])}
    for table, schema in view.context.tables.items():
        rows = view.table(table)
        for field in schema:
            if field.name != "episode" and _is_text(field.type):
                texts[table, field.name] = rows[field.name].cast(pa.string()).unique().drop_null()
    return texts


def journal_secrets(journal: Iterable[Mapping[str, Any]], parameters: Any) -> set[str]:
    """Return the strings and long numbers of a journal and of a fault's parameters that views must not contain."""
    secret: set[str] = set()
    visible: set[str] = set()
    for record in journal:
        texts = {text for field in ("args", "inverse", "state") for text in _list_leaves(record.get(field))}
        if record.get("state") in _MARKS:
            texts.discard(record["state"])
        if record.get("state") == "note":
            # a note changes nothing, and its plain words are names of phases
            texts = {text for text in texts if not re.fullmatch(r"[a-z -]+", text)}
        secret.update(texts)
        visible.update(_list_leaves(record.get("visible")))
    secret.update(_list_leaves(parameters))
    return {text for text in secret if not any(text in shown for shown in visible)}


def _list_leaves(value: Any) -> Iterator[str]:
    """Yield the strings inside a value, and its numbers that are long enough to be distinctive."""
    if isinstance(value, str):
        if len(value) >= _MIN_LENGTH and re.search(r"[A-Za-z0-9]", value):
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _list_leaves(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _list_leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        text = json.dumps(value)
        if len(text.strip("-0.").replace(".", "")) >= _MIN_LENGTH:
            yield text


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


def _build_fault_needle(fault: str) -> _Needle:
    words = [re.escape(word) for word in re.split(r"[-_.\s]+", fault) if word]
    joined = "[-_.]?".join(words)
    # a single word is too common to be searched inside longer words
    pattern = "(?i)" + (joined if len(words) > 1 else _add_boundaries(joined))
    return _Needle(fault, pattern, "the name of a fault", True)


def _build_word_needle(word: str) -> _Needle:
    return _Needle(word, "(?i)" + re.escape(word), "a word of the injector", False)


def _build_secret_needle(text: str) -> _Needle:
    return _Needle(text, _add_boundaries(re.escape(text)), _TRUTH_TEXT, True)


def _add_boundaries(pattern: str) -> str:
    return f"(?:^|[^0-9A-Za-z_]){pattern}(?:$|[^0-9A-Za-z_])"


def _list_public_names(texts: Texts) -> set[str]:
    """Return the names in telemetry (objects, metrics) and all texts of the context."""
    names = {
        text
        for (table, column), values in texts.items()
        if table in TABLES and column in _NAMING_COLUMNS
        for text in values.to_pylist()
    }
    names.update(_list_leaves(json.loads(texts["context", ""][0].as_py())))
    return names


def _find_hits(texts: Texts, needles: Sequence[_Needle]) -> Iterator[tuple[_Needle, tuple[str, str], str]]:
    """Yield every needle that a column contains, with its column and an example."""
    for column, values in texts.items():
        for needle in _find_candidates(values, needles):
            matches = _filter_matches(values, column, needle)
            if len(matches):
                yield needle, column, matches[0].as_py()


def _find_candidates(values: pa.Array, needles: Sequence[_Needle]) -> list[_Needle]:
    """Return the needles that may occur, by searching for many at once and bisecting."""
    if not len(values):
        return []
    if len(needles) == 1:
        return list(needles)
    pattern = "|".join(f"(?:{needle.pattern})" for needle in needles)
    if not pc.any(pc.match_substring_regex(values, pattern)).as_py():
        return []
    middle = len(needles) // 2
    return _find_candidates(values, needles[:middle]) + _find_candidates(values, needles[middle:])


def _filter_matches(values: pa.Array, column: tuple[str, str], needle: _Needle) -> pa.Array:
    matches = values.filter(pc.match_substring_regex(values, needle.pattern))
    if column == _STATE and len(matches):
        # the field names of a state are the same in all episodes; only its values can leak
        bare = pc.replace_substring_regex(matches, _STATE_KEY, "")
        matches = matches.filter(pc.match_substring_regex(bare, needle.pattern))
    return matches


def _existed_before(view: EpisodeView, needle: _Needle, column: tuple[str, str]) -> bool:
    """Return whether objects contained a text before the end of the healthy reference.

    Settings list their possible values, which include names of faults. The state of an object contains the values that
    an undo restores. But the name of a fault in a state is always a leak.
    """
    if column != _CONFIGURATION and (column != _STATE or needle.description != _TRUTH_TEXT):
        return False
    table, field = column
    rows = view.table(table, ["time", field])
    is_early = pc.less(rows["time"].cast(pa.int64()), view.context.reference_end_ns)
    texts = rows[field].filter(is_early).cast(pa.string()).unique().drop_null()
    return len(_filter_matches(texts, column, needle)) > 0


class _Library:
    """Texts of episodes with other faults, to distinguish vocabulary from leaks."""

    def __init__(self, views: Mapping[str, EpisodeView], labels: Mapping[str, Label]) -> None:
        self._views = views
        self._labels = labels
        self._texts: dict[str, Texts] = {}

    def is_vocabulary(self, needle: _Needle, column: tuple[str, str] | None, episode: str) -> bool | None:
        """Return whether half of up to eight episodes with other faults contain the needle; None if there are none.

        Episodes of the same application are preferred. Only `column` is searched, or all columns if it is None.
        """
        faults, app = {*self._labels[episode].fault_names}, self._views[episode].context.app
        others = [
            other
            for other in sorted(self._views)
            if other != episode and faults.isdisjoint(self._labels[other].fault_names)
        ]
        others = ([other for other in others if self._views[other].context.app == app] or others)[:_MAX_OTHERS]
        if not others:
            return None
        count = sum(self._contains(other, column, needle) for other in others)
        return 2 * count >= len(others)

    def _contains(self, episode: str, column: tuple[str, str] | None, needle: _Needle) -> bool:
        texts = self._texts_of(episode)
        # the other episode may lack this table
        columns = list(texts) if column is None else [column] if column in texts else []
        return any(len(_filter_matches(texts[name], name, needle)) > 0 for name in columns)

    def _texts_of(self, episode: str) -> Texts:
        if episode not in self._texts:
            self._texts[episode] = view_texts(self._views[episode])
        return self._texts[episode]


_NO_COMPARISON = "; the dataset has no episode with another fault to compare with"


def _build_finding(
    episode: str, needle: _Needle, column: tuple[str, str], example: str, severity: Severity, doubt: str = ""
) -> Finding:
    table, field = column
    name, subject = (CONTEXT_FILE, "it") if table == "context" else (table_file(table), f"column {field}")
    match = re.search(needle.pattern, example)
    start = max(0, match.start() - 40) if match else 0
    excerpt = example[start : start + 120].replace("\n", " ")
    return Finding(
        severity=severity,
        check="leak",
        episode=episode,
        file=f"{EPISODES}/{episode}/{name}",
        message=f'{subject} contains {needle.description}, "{needle.text}": {excerpt}{doubt}',
    )
