"""Kinds of Kubernetes objects under all the names that kubectl takes, and selectors of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from faultset.datasets.kubectl.commands import CommandError

_LABEL_TERM = re.compile(
    r"""\s*(?:(?P<absent>!)?\s*(?P<key>[\w./-]+))\s*"""
    r"""(?:(?P<sign>==|=|!=)\s*(?P<value>[\w.-]*)|(?<=\s)(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,|$)""",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class LabelTerm:
    """One condition of a label selector.

    Attributes
    ----------
    values
        Of which the label has one; None when it only has to be there.
    wanted
        Whether the condition holds, or must not hold.
    """

    key: str
    values: tuple[str, ...] | None
    wanted: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet the condition; a label that is not there has no value."""
        holds = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return holds == self.wanted


@dataclass(frozen=True)
class LabelSelector:
    """Conditions that all hold."""

    terms: tuple[LabelTerm, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet all conditions."""
        return all(term.matches(labels) for term in self.terms)


def label_selector(text: str) -> LabelSelector:
    """Return a selector as `-l` takes it: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    >>> label_selector("app in (geo, rate),!canary").matches({"app": "geo"})
    True

    Raises
    ------
    CommandError
        It cannot be read.
    """
    terms, place = [], 0
    while place < len(text):
        found = _LABEL_TERM.match(text, place)
        if found is None or (found["absent"] and (found["sign"] or found["set"])):
            raise CommandError(
                f"the selector {text[:60]!r} cannot be read; write key=value, or several joined by commas"
            )
        terms.append(_term(found))
        place = found.end()
    return LabelSelector(tuple(terms))


def field_terms(text: str) -> list[tuple[str, str, str]]:
    """Return a field selector as (path, sign, value).

    >>> field_terms("type!=Normal,reason=Killing")
    [('type', '!=', 'Normal'), ('reason', '=', 'Killing')]

    Raises
    ------
    CommandError
        It cannot be read.
    """
    return [_field_term(term) for term in text.split(",") if term.strip()]


def _term(found: re.Match[str]) -> LabelTerm:
    if found["sign"]:
        return LabelTerm(key=found["key"], values=(found["value"],), wanted=found["sign"] != "!=")
    if found["set"]:
        values = tuple(one.strip() for one in found["values"].split(","))
        return LabelTerm(key=found["key"], values=values, wanted=found["set"] == "in")
    return LabelTerm(key=found["key"], values=None, wanted=not found["absent"])


def _field_term(term: str) -> tuple[str, str, str]:
    for sign in ("!=", "==", "="):
        path, found, value = term.partition(sign)
        if found:
            return path.strip(), sign, value.strip()
    raise CommandError(f"the field selector {term[:60]!r} cannot be read")


_OWN_PART = re.compile(r"(-[a-z0-9]{5,10}-[a-z0-9]{5}|-\d+)$")


def workload_of_pod(pod: str) -> str:
    """Return the workload of a pod by its name.

    Examples
    --------
    >>> workload_of_pod("mongodb-geo-7d5f6d4c9b-x2k4f"), workload_of_pod("mysql-0"), workload_of_pod("geo")
    ('mongodb-geo', 'mysql', 'geo')
    """
    return _OWN_PART.sub("", pod)


Reference = tuple[str, str | None]
"""Kind and name of an object; a name of None is all of the kind."""


class ObjectKind(NamedTuple):
    """One kind as kubectl lists it."""

    kind: str
    plural: str
    short: tuple[str, ...]
    api_version: str
    namespaced: bool

    @property
    def group(self) -> str:
        """API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Version within the group."""
        return self.api_version.rpartition("/")[2]


KINDS = (
    ObjectKind("Pod", "pods", ("po",), "v1", True),
    ObjectKind("Deployment", "deployments", ("deploy",), "apps/v1", True),
    ObjectKind("ReplicaSet", "replicasets", ("rs",), "apps/v1", True),
    ObjectKind("Service", "services", ("svc",), "v1", True),
    ObjectKind("Endpoints", "endpoints", ("ep",), "v1", True),
    ObjectKind("PersistentVolumeClaim", "persistentvolumeclaims", ("pvc",), "v1", True),
    ObjectKind("PersistentVolume", "persistentvolumes", ("pv",), "v1", False),
    ObjectKind("ConfigMap", "configmaps", ("cm",), "v1", True),
    ObjectKind("Event", "events", ("ev",), "v1", True),
    ObjectKind("Namespace", "namespaces", ("ns",), "v1", False),
    ObjectKind("Node", "nodes", ("no",), "v1", False),
    ObjectKind("Secret", "secrets", (), "v1", True),
    ObjectKind("ServiceAccount", "serviceaccounts", ("sa",), "v1", True),
    ObjectKind("StatefulSet", "statefulsets", ("sts",), "apps/v1", True),
    ObjectKind("DaemonSet", "daemonsets", ("ds",), "apps/v1", True),
    ObjectKind("Job", "jobs", (), "batch/v1", True),
    ObjectKind("CronJob", "cronjobs", ("cj",), "batch/v1", True),
    ObjectKind("HorizontalPodAutoscaler", "horizontalpodautoscalers", ("hpa",), "autoscaling/v2", True),
    ObjectKind("Ingress", "ingresses", ("ing",), "networking.k8s.io/v1", True),
    ObjectKind("NetworkPolicy", "networkpolicies", ("netpol",), "networking.k8s.io/v1", True),
    ObjectKind("EndpointSlice", "endpointslices", (), "discovery.k8s.io/v1", True),
    ObjectKind("ResourceQuota", "resourcequotas", ("quota",), "v1", True),
    ObjectKind("StorageClass", "storageclasses", ("sc",), "storage.k8s.io/v1", False),
    ObjectKind("CustomResourceDefinition", "customresourcedefinitions", ("crd",), "apiextensions.k8s.io/v1", False),
)  # fmt: skip
_NAMES = {name: kind for kind in KINDS for name in (kind.kind.lower(), kind.plural, *kind.short)}
_KINDS = {kind.kind: kind for kind in KINDS}
CATEGORY_ALL = (
    "Pod", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "HorizontalPodAutoscaler", "CronJob",
    "Job",
)  # fmt: skip
"""What `kubectl get all` lists, in its order."""


def object_kind(name: str) -> ObjectKind | None:
    """Return a kind by any of its names, with or without its API group; None for one that is not known.

    >>> object_kind("deployments.apps").kind, object_kind("Deploy").kind, object_kind("deployments.v1")
    ('Deployment', 'Deployment', None)
    """
    name, _, group = name.strip().lower().partition(".")
    kind = _NAMES.get(name)
    return kind if kind is not None and group in ("", kind.group, f"{kind.version}.{kind.group}") else None


def canonical_kind(name: str) -> str | None:
    """Return the name of a kind as objects carry it."""
    kind = object_kind(name)
    return None if kind is None else kind.kind


def resource_name(kind: str) -> str:
    """Return the plural of a kind with its group, as it stands in errors of the API server.

    >>> resource_name("Deployment"), resource_name("Pod")
    ('deployments.apps', 'pods')
    """
    known = _KINDS.get(kind)
    return _joined(known.plural, known.group) if known else kind.lower()


def type_name(kind: str) -> str:
    """Return a kind as it stands in front of an object's name.

    >>> type_name("Deployment"), type_name("Pod")
    ('deployment.apps', 'pod')
    """
    known = _KINDS.get(kind)
    return _joined(kind.lower(), known.group if known else "")


def full_name(kind: str, name: str) -> str:
    """Return an object as kubectl names it in its answers.

    >>> full_name("Deployment", "geo")
    'deployment.apps/geo'
    """
    return f"{type_name(kind)}/{name}"


def references(
    words: Sequence[str], kind_of: Callable[[str], str], of_all: Sequence[str], selector: str | None = None
) -> list[Reference]:
    """Return the objects that the words after a verb name.

    Parameters
    ----------
    kind_of
        Returns the kind that a word stands for; raises when there is none.
    of_all
        Kinds of which `all` consists.
    selector
        Of labels, as given beside the words.

    Raises
    ------
    CommandError
        No kind is given, both forms are mixed, or names are given beside a selector.

    Examples
    --------
    >>> references(("deploy", "geo", "rate"), canonical_kind, ())
    [('Deployment', 'geo'), ('Deployment', 'rate')]
    >>> references(("svc/geo",), canonical_kind, ()), references(("pods,svc",), canonical_kind, ())
    ([('Service', 'geo')], [('Pod', None), ('Service', None)])
    """
    kinds = [word for word in words[0].split(",") if word] if words else []
    if not kinds:
        raise CommandError("which objects? give a kind and a name, for instance deployment/geo, or deployment geo")
    is_paired = any("/" in word for word in words)
    if selector and (is_paired or words[1:]):
        raise CommandError("a name and a selector exclude each other; leave one out")
    if is_paired:
        pairs = [word.partition("/") for word in words]
        if not all(kind and name for kind, _, name in pairs):
            raise CommandError(f"either KIND NAME or KIND/NAME; found {' '.join(words)[:200]}")
        return [(kind_of(kind), name) for kind, _, name in pairs]
    named = [kind for word in kinds for kind in (of_all if word.lower() == "all" else (kind_of(word),))]
    return [(kind, name) for kind in named for name in (words[1:] or (None,))]


def _joined(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name
