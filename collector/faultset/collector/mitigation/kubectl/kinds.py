"""Kinds of objects, under the names by which kubectl knows them."""

from __future__ import annotations

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.core.suggestions import suggest

_NAMES: dict[str, tuple[str, ...]] = {
    "Pod": ("pods", "pod", "po"),
    "Deployment": ("deployments.apps", "deployments", "deployment", "deploy"),
    "ReplicaSet": ("replicasets.apps", "replicasets", "replicaset", "rs"),
    "StatefulSet": ("statefulsets.apps", "statefulsets", "statefulset", "sts"),
    "Service": ("services", "service", "svc"),
    "Endpoints": ("endpoints", "ep"),
    "ConfigMap": ("configmaps", "configmap", "cm"),
    "Secret": ("secrets", "secret"),
    "PersistentVolumeClaim": ("persistentvolumeclaims", "persistentvolumeclaim", "pvc"),
    "PersistentVolume": ("persistentvolumes", "persistentvolume", "pv"),
    "Node": ("nodes", "node", "no"),
    "Event": ("events", "event", "ev"),
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}

WORKLOADS = ("Deployment", "StatefulSet")
"""Kinds with a pod template."""
WRITABLE = frozenset(_NAMES) - {"Node", "Event", "Endpoints"}
"""Kinds that commands may change: nodes are nobody's, and controllers own the rest."""
OF_ALL = ("Pod", "Service", "Deployment", "ReplicaSet", "StatefulSet")
"""Kinds that `kubectl get all` shows."""


def kind_of(word: str) -> str:
    """Return the kind that a word stands for, in any case.

    >>> kind_of("deploy"), kind_of("SVC")
    ('Deployment', 'Service')

    Raises
    ------
    CommandRefused
        No kind is called so.
    """
    kind = _KINDS.get(word.lower())
    if kind is None:
        short = [names[-1] for names in _NAMES.values()]
        raise CommandRefused(f'the server doesn\'t have a resource type "{word}"; {suggest(word, short)}')
    return kind


def full_name(kind: str, name: str) -> str:
    """Return an object as kubectl names it in its answers.

    >>> full_name("Deployment", "geo")
    'deployment.apps/geo'
    """
    plural = _NAMES[kind][0]
    group = ".apps" if plural.endswith(".apps") else ""
    return f"{kind.lower()}{group}/{name}"


def plural(kind: str) -> str:
    """Return a kind's plural with its group, as in errors of the API server."""
    return _NAMES[kind][0]


def references(words: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return the objects that the words after a verb name; a name of None is all of the kind.

    >>> references(("deploy", "geo", "rate")), references(("svc/geo",)), references(("pods,svc",))
    ([('Deployment', 'geo'), ('Deployment', 'rate')], [('Service', 'geo')], [('Pod', None), ('Service', None)])

    Raises
    ------
    CommandRefused
        No kind is given, an unknown one, or both forms are mixed.
    """
    if not words:
        raise CommandRefused("which objects? give a kind and a name, for instance deployment/geo, or deployment geo")
    if any("/" in word for word in words):
        pairs = [word.partition("/") for word in words]
        if not all(slash and name for _, slash, name in pairs):
            raise CommandRefused(f"either KIND NAME or KIND/NAME; found {' '.join(words)}")
        return [(kind_of(kind), name) for kind, _, name in pairs]
    kinds = [kind for word in words[0].split(",") for kind in (OF_ALL if word == "all" else (kind_of(word),))]
    return [(kind, name) for kind in kinds for name in (words[1:] or (None,))]
