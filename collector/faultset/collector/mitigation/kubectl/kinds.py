"""Kinds of objects that commands are about."""

from __future__ import annotations

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.core.suggestions import suggest
from faultset.datasets.kubectl import kinds
from faultset.datasets.kubectl.kinds import CATEGORY_ALL, KINDS, Reference, canonical_kind

WORKLOADS = ("Deployment", "StatefulSet")
"""Kinds with a pod template."""
KNOWN = (
    "Pod", *WORKLOADS, "ReplicaSet", "Service", "Endpoints", "ConfigMap", "Secret", "PersistentVolumeClaim",
    "PersistentVolume", "Node", "Event",
)  # fmt: skip
"""Kinds that platforms have."""
WRITABLE = frozenset(KNOWN) - {"Node", "Event", "Endpoints"}
"""Kinds that commands may change: nodes are nobody's, and controllers own the rest."""
_OF_ALL = tuple(kind for kind in CATEGORY_ALL if kind in KNOWN)


def references(words: tuple[str, ...], selector: str | None = None) -> list[Reference]:
    """Return the objects that the words after a verb name; a name of None is all of the kind.

    Raises
    ------
    CommandError
        No kind is given, an unknown one, both forms are mixed, or names are given beside a selector.
    """
    return kinds.references(words, _kind_of, _OF_ALL, selector)


def _kind_of(word: str) -> str:
    kind = canonical_kind(word)
    if kind is None or kind not in KNOWN:
        names = [one.short[0] if one.short else one.plural for one in KINDS if one.kind in KNOWN]
        raise CommandRefused(f'the server doesn\'t have a resource type "{word}"; {suggest(word, names)}')
    return kind
