"""Does a view say what happened? Search every text a method can see for what only the truth should know.

Searched for: the names of the dataset's faults however their words are joined; words of an injector; and what was
written to the journal (arguments, inverses, state) or drawn as a parameter, unless the fault's own change shows it
to an operator (`visible` in the journal) or it names an object that telemetry lists anyway. The name of a fault that
views of other faults have in the same column as well tells nothing, and is no leak, nor is another text that they have
anywhere: views of the same application are looked at where there are any. Neither is one that a ConfigMap had before
anything was injected, nor what an undo goes back to if the state of an object showed it then. A number tells nothing
where otherwise equal texts of the column have many others.

What an imported dataset shows is its source's doing and cannot be mended here: findings are warnings, and the names
of metrics (RCAEval's fault "cpu" beside its metric "cpu") are no findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute

from faultset.datasets.checks.findings import Finding, Severity
from faultset.datasets.format.context import CONTEXT_FILE, IMPORTED
from faultset.datasets.format.episodes import EPISODES, table_file
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

LEAST_NUMBERS = 20
"""From so many different numbers in the same place of otherwise equal texts on, one of them tells nothing."""

_DIGITS = "[0-9]+"


def is_coincidence(number: str, values: pa.Array, example: str) -> bool:
    """Say whether a column has many other numbers where one of its texts has this one.

    Parameters
    ----------
    number
        The number as text; anything else is never there by coincidence.
    values
        The distinct texts of the column.
    example
        One of them, which has the number.
    """
    if not re.fullmatch(_DIGITS, number):
        return False
    places = [place.span() for place in re.finditer(_DIGITS, example)]
    indices = [index for index, (start, end) in enumerate(places) if example[start:end] == number]
    shape = re.sub(_DIGITS, "#", example)
    alike = values.filter(pc.equal(pc.replace_substring_regex(values, _DIGITS, "#"), shape)).to_pylist()
    numbers = [re.findall(_DIGITS, text) for text in alike]
    return bool(indices) and all(len({found[index] for found in numbers}) >= LEAST_NUMBERS for index in indices)


INJECTOR_WORDS = ("chaos", "inject", "faultset-control", "faultset-agent", "faultset-load", "impairment", "stress-ng")
"""Words that only an injector brings along; found in any letter case and inside longer words."""

_NAMING_COLUMNS = ("service", "pod", "container", "kind", "name", "reason", "endpoint", "metric")
_MARKS = ("intent", "done", "failed", "undone", "note")
_METRIC_NAMES = (("context", ""), ("metrics", "metric"))
_SHORTEST = 4
_OTHERS = 8
_CONFIGURATION = ("objects", "data")
_STATE = ("objects", "state")
_OF_TRUTH = "a text or number from the journal or the fault's parameters"
_STATE_KEY = r'"[A-Za-z]+":'

# Its functions are made at import, where type checkers do not see them.

Texts = dict[tuple[str, str], pa.Array]
"""(table, column) -> distinct strings; the context is ("context", "")."""


@dataclass(frozen=True)
class _Needle:
    text: str
    pattern: str
    what: str
    dismissible: bool


def leak_findings(
    views: Mapping[str, EpisodeView],
    labels: Mapping[str, Label],
    journals: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[Finding]:
    """Return one finding per episode, column and text that should not be there."""
    faults = sorted({name for label in labels.values() for name in label.fault_names})
    names = [_fault_needle(fault) for fault in faults] + [_word_needle(word) for word in INJECTOR_WORDS]
    library = _Library(views, labels)
    findings = []
    for episode in sorted(views):
        texts = view_texts(views[episode])
        secrets = journal_secrets(journals[episode], labels[episode].parameters)
        needles = names + [_secret_needle(secret) for secret in sorted(secrets - _known_names(texts))]
        imported = views[episode].context.platform == IMPORTED
        for needle, place, example in _hits(texts, needles):
            if imported and place in _METRIC_NAMES:
                continue
            is_vocabulary = needle.dismissible and (
                _was_there_before(views[episode], needle, place)
                or is_coincidence(needle.text, texts[place], example)
                or library.is_vocabulary(needle, place if needle in names else None, episode)
            )
            if is_vocabulary is None and needle not in names:
                findings.append(_finding(episode, needle, place, example, "warning", _ALONE))
            elif not is_vocabulary:
                findings.append(_finding(episode, needle, place, example, "warning" if imported else "error"))
    return findings


def view_texts(view: EpisodeView) -> Texts:
    """Return every distinct string that a view shows, by table and column."""
    texts: Texts = {("context", ""): pa.array([view.context.to_json()])}
    for table, schema in view.context.tables.items():
        rows = view.table(table)
        for field in schema:
            if field.name != "episode" and _is_text(field.type):
                texts[table, field.name] = rows[field.name].cast(pa.string()).unique().drop_null()
    return texts


def journal_secrets(journal: Iterable[Mapping[str, Any]], parameters: Any) -> set[str]:
    """Return the strings and telling numbers of a journal and of a fault's parameters that nobody else may know."""
    secret: set[str] = set()
    visible: set[str] = set()
    for record in journal:
        said = {text for part in ("args", "inverse", "state") for text in _leaves(record.get(part))}
        if record.get("state") in _MARKS:
            said.discard(record["state"])
        if record.get("state") == "note":
            # A note changes nothing; its plain words (names of phases) are anybody's.
            said = {text for text in said if not re.fullmatch(r"[a-z -]+", text)}
        secret.update(said)
        visible.update(_leaves(record.get("visible")))
    secret.update(_leaves(parameters))
    return {text for text in secret if not any(text in shown for shown in visible)}


def _leaves(value: Any) -> Iterator[str]:
    """Yield the strings inside a value, and its numbers when they are long enough to be told from others."""
    if isinstance(value, str):
        if len(value) >= _SHORTEST and re.search(r"[A-Za-z0-9]", value):
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        text = json.dumps(value)
        if len(text.strip("-0.").replace(".", "")) >= _SHORTEST:
            yield text


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


def _fault_needle(fault: str) -> _Needle:
    words = [re.escape(word) for word in re.split(r"[-_.\s]+", fault) if word]
    joined = "[-_.]?".join(words)
    # One word alone is too common to be looked for inside others.
    pattern = "(?i)" + (joined if len(words) > 1 else _bounded(joined))
    return _Needle(fault, pattern, "the name of a fault", True)


def _word_needle(word: str) -> _Needle:
    return _Needle(word, "(?i)" + re.escape(word), "a word of the injector", False)


def _secret_needle(text: str) -> _Needle:
    return _Needle(text, _bounded(re.escape(text)), _OF_TRUTH, True)


def _bounded(pattern: str) -> str:
    return f"(?:^|[^0-9A-Za-z_]){pattern}(?:$|[^0-9A-Za-z_])"


def _known_names(texts: Texts) -> set[str]:
    """Return what telemetry names anyway: objects, metrics, and whatever the context says."""
    known = {
        text
        for (table, column), values in texts.items()
        if table in TABLES and column in _NAMING_COLUMNS
        for text in values.to_pylist()
    }
    known.update(_leaves(json.loads(texts["context", ""][0].as_py())))
    return known


def _hits(texts: Texts, needles: Sequence[_Needle]) -> Iterator[tuple[_Needle, tuple[str, str], str]]:
    """Yield every needle that a column has, with one text that has it."""
    for place, values in texts.items():
        for needle in _present(values, place, needles):
            found = _matching(values, place, needle)
            if len(found):
                yield needle, place, found[0].as_py()


def _present(values: pa.Array, place: tuple[str, str], needles: Sequence[_Needle]) -> list[_Needle]:
    """Return the needles worth looking for, by searching for many at once."""
    if not len(values):
        return []
    if len(needles) == 1:
        return list(needles)
    pattern = "|".join(f"(?:{needle.pattern})" for needle in needles)
    if not pc.any(pc.match_substring_regex(values, pattern)).as_py():
        return []
    middle = len(needles) // 2
    return _present(values, place, needles[:middle]) + _present(values, place, needles[middle:])


def _matching(values: pa.Array, place: tuple[str, str], needle: _Needle) -> pa.Array:
    found = values.filter(pc.match_substring_regex(values, needle.pattern))
    if place == ("objects", "state") and len(found):
        # Field names of a state are ours, the same in every episode; only what they hold can tell.
        bare = pc.replace_substring_regex(found, _STATE_KEY, "")
        found = found.filter(pc.match_substring_regex(bare, needle.pattern))
    return found


def _was_there_before(view: EpisodeView, needle: _Needle, place: tuple[str, str]) -> bool:
    """Say whether objects had a text already while all was healthy.

    Settings name what they can be set to, also the fault's name. The state of an object has what an undo goes back to;
    a name in it tells at any time.
    """
    if place != _CONFIGURATION and (place != _STATE or needle.what != _OF_TRUTH):
        return False
    table, column = place
    rows = view.table(table, ["time", column])
    early = pc.less(rows["time"].cast(pa.int64()), view.context.reference_end_ns)
    texts = rows[column].filter(early).cast(pa.string()).unique().drop_null()
    return len(_matching(texts, place, needle)) > 0


class _Library:
    """Texts of some episodes with other faults, to tell vocabulary from leaks."""

    def __init__(self, views: Mapping[str, EpisodeView], labels: Mapping[str, Label]) -> None:
        self._views = views
        self._labels = labels
        self._texts: dict[str, Texts] = {}

    def is_vocabulary(self, needle: _Needle, place: tuple[str, str] | None, episode: str) -> bool | None:
        """Say whether half of the other episodes have the needle in a column, or in any; None without others."""
        mine, app = {*self._labels[episode].fault_names}, self._views[episode].context.app
        others = [
            other
            for other in sorted(self._views)
            if other != episode and mine.isdisjoint(self._labels[other].fault_names)
        ]
        others = ([other for other in others if self._views[other].context.app == app] or others)[:_OTHERS]
        if not others:
            return None
        having = sum(self._has(other, place, needle) for other in others)
        return 2 * having >= len(others)

    def _has(self, episode: str, place: tuple[str, str] | None, needle: _Needle) -> bool:
        texts = self._of(episode)
        places = [place] if place in texts else [] if place else list(texts)  # another one may lack an added table
        return any(len(_matching(texts[one], one, needle)) > 0 for one in places)

    def _of(self, episode: str) -> Texts:
        if episode not in self._texts:
            self._texts[episode] = view_texts(self._views[episode])
        return self._texts[episode]


_ALONE = "; no episode with another fault is there to tell whether all show it"


def _finding(
    episode: str, needle: _Needle, place: tuple[str, str], example: str, severity: Severity, doubt: str = ""
) -> Finding:
    table, column = place
    if table == "context":
        name, where = CONTEXT_FILE, "it"
    else:
        name, where = table_file(table), f"column {column}"
    match = re.search(needle.pattern, example)
    start = max(0, match.start() - 40) if match else 0
    excerpt = example[start : start + 120].replace("\n", " ")
    return Finding(
        severity=severity,
        check="leak",
        episode=episode,
        file=f"{EPISODES}/{episode}/{name}",
        message=f'{where} shows {needle.what}, "{needle.text}": {excerpt}{doubt}',
    )
