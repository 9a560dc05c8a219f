"""Attributes, labels and paths that say where a record comes from.

The names come from OpenTelemetry's semantic conventions (1.37 and earlier), Prometheus, Kubernetes, Istio, Elastic and
Fluent Bit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from faultset.core.files import canonical_json, replace_surrogates
from faultset.datasets.telemetry_formats.otlp_json import OUR_SERVICE

_MAX_NAME_LENGTH = 300
NO_SERVICE = "-"
"""Service in the origin of a record that belongs to no service."""


class Origin(NamedTuple):
    """Names in a record that show where it comes from; unknown fields are empty."""

    service: str = ""
    """Service name from an attribute, a label or a column."""
    workload: str = ""
    """Deployment, StatefulSet or another owner of the pod."""
    pod: str = ""
    container: str = ""
    namespace: str = ""
    host: str = ""
    reported: str = ""
    """Name that the process reported, if it differs from `service`."""

    def text(self) -> str:
        """Return the origin as canonical JSON, without unknown fields."""
        return canonical_json({name: value for name, value in zip(self._fields, self, strict=True) if value})

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Return the origin from the result of `text`."""
        return cls(**json.loads(text))


def short_name(value: Any) -> str:
    """Return a foreign name as printable text of limited length.

    >>> short_name("cart"), short_name(None), short_name("a\\nb")
    ('cart', '', 'a b')
    """
    text = "" if value is None else str(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in replace_surrogates(text))
    return text[:_MAX_NAME_LENGTH].strip()


IDENTITY: dict[str, tuple[str, ...]] = {
    "service": (
        "faultset.service", "service.name", "service_name", "serviceName", "service", "resource.service.name",
        "app.kubernetes.io/name", "app_kubernetes_io_name", "application", "app",
    ),
    "workload": (
        "k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name", "k8s.cronjob.name", "k8s.job.name",
        "k8s_deployment_name", "k8s_statefulset_name", "k8s_daemonset_name", "kubernetes.deployment.name",
        "kubernetes.statefulset.name", "kubernetes.daemonset.name", "deployment", "statefulset", "daemonset",
    ),
    "pod": ("k8s.pod.name", "k8s_pod_name", "kubernetes.pod.name", "kubernetes.pod_name", "pod", "pod_name"),
    "container": (
        "k8s.container.name", "k8s_container_name", "kubernetes.container.name", "kubernetes.container_name",
        "container", "container_name", "container.name",
    ),
    "namespace": (
        "k8s.namespace.name", "k8s_namespace_name", "kubernetes.namespace", "kubernetes.namespace_name", "namespace",
        "kubernetes_namespace",
    ),
    "host": ("host.name", "host_name", "k8s.node.name", "k8s_node_name", "kubernetes.node.name", "node", "hostname"),
}  # fmt: skip
"""Field of an origin -> names of the attributes that may hold it, best first."""
SCRAPE_LABELS = frozenset({"job", "instance", "prometheus", "prometheus_replica", "endpoint", "metrics_path"})
"""Labels that scraping adds; `job` names the service if nothing better does."""
_ISTIO = ("workload", "canonical_service")
_POD_LOGS = re.compile(r"/pods/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_[^/]+/(?P<container>[^/]+)/\d+\.log")
_CONTAINER_LOGS = re.compile(
    r"/(?P<pod>[a-z0-9.-]+)_(?P<namespace>[a-z0-9-]+)_(?P<container>[a-z0-9.-]+)-[0-9a-f]{64}\.log"
)
_OUR_LOGS = re.compile(r"/(?P<pod>[a-z0-9.-]+)/(?P<container>[a-z0-9.-]+)/\d+\.log$")


def read_origin(facts: Mapping[str, Any], default: Origin = Origin()) -> Origin:  # noqa: B008
    """Return the origin that attributes describe; fields that they lack come from `default`."""
    origin = Origin(*(_find_value(facts, names) or getattr(default, field) for field, names in IDENTITY.items()))
    if OUR_SERVICE not in facts:
        return origin
    # Our own exports have the workload and the name that the process reported.
    return origin._replace(
        service=short_name(facts[OUR_SERVICE]) or NO_SERVICE, reported=_find_value(facts, ("service.name",))
    )


def split_labels(labels: Mapping[str, Any], default: Origin = Origin()) -> tuple[Origin, dict[str, str]]:  # noqa: B008
    """Return the origin of a metric series and its other labels."""
    rest = {str(name): value if isinstance(value, str) else str(value) for name, value in labels.items()}
    fields: dict[str, str] = {}
    for field, names in IDENTITY.items():
        name = next((name for name in names if rest.get(name) and not _describes(field, name, rest)), None)
        if name is not None:
            fields[field] = short_name(rest[name] if name == _find_object_label(rest) else rest.pop(name))
    side = rest.get("reporter")
    if side in ("source", "destination") or "source_workload" in rest:
        prefix = "source" if side == "source" else "destination"
        istio = next((rest[f"{prefix}_{name}"] for name in _ISTIO if rest.get(f"{prefix}_{name}")), None)
        if istio and istio != "unknown":
            fields["service"] = short_name(istio)
    job = rest.pop("job", "")
    if job and not (default.service or any(fields.get(field) for field in ("service", "workload", "pod"))):
        fields["service"] = short_name(job.rpartition("/")[2])
    for name in SCRAPE_LABELS - {_find_object_label(rest)}:
        rest.pop(name, None)
    return Origin(*(fields.get(field) or getattr(default, field) for field in IDENTITY)), rest


def _describes(field: str, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a label names the measured object rather than the origin of the measurement."""
    return field in ("service", "host") and name == _find_object_label(labels)


def _find_object_label(labels: Mapping[str, str]) -> str:
    """Return the label with which kube-state-metrics names the object of a series; empty for other metrics."""
    words = labels.get("__name__", "").split("_")
    return words[1] if words[0] == "kube" and len(words) > 2 and words[1] not in ("pod", "namespace") else ""


def _find_value(facts: Mapping[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        value = facts.get(name)
        if isinstance(value, str | int) and value != "":
            return short_name(value)
    return ""


def origin_of_path(path: Path) -> Origin:
    """Return the origin that the path of a container's log names.

    >>> origin_of_path(Path("/var/log/pods/shop_cart-7d4b9c-x2x4z_0f1e/server/0.log")).pod
    'cart-7d4b9c-x2x4z'
    """
    text = path.as_posix()
    match = _POD_LOGS.search(text) or _CONTAINER_LOGS.search(text) or _OUR_LOGS.search(text)
    if match is None:
        return Origin()
    facts = match.groupdict()
    return Origin(pod=facts["pod"], container=facts["container"], namespace=facts.get("namespace", ""))
