"""Kinds of Kubernetes objects with all their names, and selectors of objects."""

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
    """A condition of a label selector; negated unless `is_positive`."""

    key: str
    values: tuple[str, ...] | None
    """Accepted values; None if the label only has to exist."""
    is_positive: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition; a missing label has no value."""
        holds = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return holds == self.is_positive


@dataclass(frozen=True)
class LabelSelector:
    """A conjunction of conditions."""

    terms: tuple[LabelTerm, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(term.matches(labels) for term in self.terms)


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a selector of `-l`: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

    >>> parse_label_selector("app in (geo, rate),!canary").matches({"app": "geo"})
    True
    """
    terms, position = [], 0
    while position < len(text):
        match = _LABEL_TERM.match(text, position)
        if match is None or (match["absent"] and (match["sign"] or match["set"])):
            raise CommandError(
                f"the selector {text[:60]!r} cannot be parsed; write key=value, or several joined by commas"
            )
        terms.append(_label_term(match))
        position = match.end()
    return LabelSelector(tuple(terms))


def field_terms(text: str) -> list[tuple[str, str, str]]:
    """Parse a field selector into (path, sign, value).

    >>> field_terms("type!=Normal,reason=Killing")
    [('type', '!=', 'Normal'), ('reason', '=', 'Killing')]
    """
    return [_field_term(term) for term in text.split(",") if term.strip()]


def _label_term(match: re.Match[str]) -> LabelTerm:
    if match["sign"]:
        return LabelTerm(key=match["key"], values=(match["value"],), is_positive=match["sign"] != "!=")
    if match["set"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return LabelTerm(key=match["key"], values=values, is_positive=match["set"] == "in")
    return LabelTerm(key=match["key"], values=None, is_positive=not match["absent"])


def _field_term(term: str) -> tuple[str, str, str]:
    for sign in ("!=", "==", "="):
        path, separator, value = term.partition(sign)
        if separator:
            return path.strip(), sign, value.strip()
    raise CommandError(f"the field selector {term[:60]!r} cannot be parsed; write path=value or path!=value")


_POD_SUFFIX = re.compile(r"(-[a-z0-9]{5,10}-[a-z0-9]{5}|-\d+)$")


def workload_of_pod(pod: str) -> str:
    """Infer the workload of a pod from its name.

    >>> workload_of_pod("mongodb-geo-7d5f6d4c9b-x2k4f"), workload_of_pod("mysql-0"), workload_of_pod("geo")
    ('mongodb-geo', 'mysql', 'geo')
    """
    return _POD_SUFFIX.sub("", pod)


Reference = tuple[str, str | None]
"""Kind and name of an object; the name is None for all objects of the kind."""


class ObjectKind(NamedTuple):
    kind: str
    plural: str
    short: tuple[str, ...]
    api_version: str
    namespaced: bool

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
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
"""Kinds that `kubectl get all` lists, in order."""


def object_kind(name: str) -> ObjectKind | None:
    """Return the kind for any of its names, with or without API group, or None if unknown.

    >>> object_kind("deployments.apps").kind, object_kind("Deploy").kind, object_kind("deployments.v1")
    ('Deployment', 'Deployment', None)
    """
    name, _, group = name.strip().lower().partition(".")
    kind = _NAMES.get(name)
    return kind if kind is not None and group in ("", kind.group, f"{kind.version}.{kind.group}") else None


def canonical_kind(name: str) -> str | None:
    """Return a kind as the field `kind` of objects spells it, for any of its names; None if unknown."""
    kind = object_kind(name)
    return None if kind is None else kind.kind


def resource_name(kind: str) -> str:
    """Return the plural of a kind with its group, as in errors of the API server.

    >>> resource_name("Deployment"), resource_name("Pod")
    ('deployments.apps', 'pods')
    """
    definition = _KINDS.get(kind)
    return _with_group(definition.plural, definition.group) if definition else kind.lower()


def type_name(kind: str) -> str:
    """Return a kind as the prefix of an object's name.

    >>> type_name("Deployment"), type_name("Pod")
    ('deployment.apps', 'pod')
    """
    definition = _KINDS.get(kind)
    return _with_group(kind.lower(), definition.group if definition else "")


def full_name(kind: str, name: str) -> str:
    """Return the name of an object in kubectl's output.

    >>> full_name("Deployment", "geo")
    'deployment.apps/geo'
    """
    return f"{type_name(kind)}/{name}"


def references(
    words: Sequence[str], kind_of: Callable[[str], str], of_all: Sequence[str], selector: str | None = None
) -> list[Reference]:
    """Return the objects named by the words after a verb; `of_all` are the kinds for `all`.

    >>> references(("deploy", "geo", "rate"), canonical_kind, ())
    [('Deployment', 'geo'), ('Deployment', 'rate')]
    >>> references(("svc/geo",), canonical_kind, ()), references(("pods,svc",), canonical_kind, ())
    ([('Service', 'geo')], [('Pod', None), ('Service', None)])
    """
    kinds = [word for word in words[0].split(",") if word] if words else []
    if not kinds:
        raise CommandError("a kind is missing; give a kind and a name, for instance deployment/geo or deployment geo")
    is_paired = any("/" in word for word in words)
    if selector and (is_paired or words[1:]):
        raise CommandError("names cannot be combined with a selector; leave one out")
    if is_paired:
        pairs = [word.partition("/") for word in words]
        if not all(kind and name for kind, _, name in pairs):
            raise CommandError(f"objects must be KIND NAME or KIND/NAME, got {' '.join(words)[:200]}")
        return [(kind_of(kind), name) for kind, _, name in pairs]
    expanded = [kind for word in kinds for kind in (of_all if word.lower() == "all" else (kind_of(word),))]
    return [(kind, name) for kind in expanded for name in (words[1:] or (None,))]


def _with_group(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name
