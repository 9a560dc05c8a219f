"""Drain: an online log parser with a tree of fixed depth.

Written here because no package can be depended on without cost: `drain3`, the usual one, had its last
release in 2022 and pins cachetools 4.2.1 and jsonpickle 1.5.1 exactly, which every user of faultset would
inherit; the other parsers on the index are older still. This one keeps nothing on disk and takes time
linear in the number of lines.

References
----------
He, Zhu, Zheng, Lyu, Drain: An Online Log Parsing Approach with Fixed Depth Tree, ICWS 2017.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from faultset.datasets.log_masks import WILDCARD

# One pass over a line finds all that varies; only what the group catches is a number that means something.
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
    """Separate what is constant in a message from its numeric parameters.

    Addresses and ids become wildcards like numbers do, but are no parameters.

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
    """Stable, unlike the words, which change as wildcards appear."""
    words: list[str]
    count: int = 1

    @property
    def text(self) -> str:
        """The template as people read it."""
        return " ".join(self.words)


@dataclass
class _Leaf:
    templates: list[Template] = field(default_factory=list)
    changes: int = 0


class Drain:
    """Group messages into templates as they come.

    Parameters
    ----------
    depth
        Levels of the tree, counting the root, the level of message lengths and the leaves: with 4, messages
        of one length are told apart by their first word before they are compared in full.
    similarity
        Share of words that must agree with a template; a wildcard agrees with nothing.
    max_children
        Branches per node; further words share one branch.
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
        """Find or make the template of a message without its variables and return the template's id."""
        cached = self._seen.get(masked)
        if cached is not None:
            leaf, changes, template = cached
            # As long as its leaf is what it was, the search would end where it ended before.
            if leaf.changes == changes:
                template.count += 1
                return template.id
        words = masked.split()
        leaf = self._leaves.setdefault(self._path(words), _Leaf())
        template = self._best(leaf.templates, words)
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
        """Return template id and numeric parameters of each message, in order."""
        ids, parameters = [], []
        for message in messages:
            masked, numbers = split_variables(message)
            ids.append(self.add(masked))
            parameters.append(numbers)
        return ids, parameters

    def _path(self, words: list[str]) -> tuple[str, ...]:
        path: tuple[str, ...] = (str(len(words)),)
        for word in words[: max(0, self.depth - 3)]:
            branch = WILDCARD if any(letter.isdigit() for letter in word) else word
            children = self._children.setdefault(path, set())
            if branch not in children and len(children) >= self.max_children:
                branch = WILDCARD
            children.add(branch)
            path = (*path, branch)
        return path

    def _best(self, templates: list[Template], words: list[str]) -> Template | None:
        best, found = (self.similarity, -1), None
        for template in templates:
            same = sum(old == new != WILDCARD for old, new in zip(template.words, words, strict=True))
            rank = (same / len(words) if words else 1.0, template.words.count(WILDCARD))
            if rank > best:
                best, found = rank, template
        return found
