"""What an API server refuses: values of objects that it does not support, and changes of what cannot change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.observation.quantities import quantity
from faultset.core.errors import PlatformError

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_LARGEST_ID = 2**31 - 1
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_CHANGEABLE = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit")
_CHANGEABLE += ("persistentVolumeClaimRetentionPolicy", "minReadySeconds")


class InvalidObject(PlatformError):
    """The API server refuses an object; the text is that of Kubernetes."""


def check_object(made: Object, before: Object | None = None) -> None:
    """Raise InvalidObject when an object is refused.

    Parameters
    ----------
    before
        The object in its place, if there is one.
    """
    faults = list(_CHECKS[made["kind"]](made["spec"])) if made["kind"] in _CHECKS and "spec" in made else []
    if made["kind"] == "StatefulSet" and before is not None and _fixed(made) != _fixed(before):
        known = ", ".join(f"'{field}'" for field in _CHANGEABLE[:-1])
        faults.append(
            f"spec: Forbidden: updates to statefulset spec for fields other than {known} and '{_CHANGEABLE[-1]}' "
            "are forbidden"
        )
    if faults:
        group = "." + made["apiVersion"].partition("/")[0] if "/" in made["apiVersion"] else ""
        text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        raise InvalidObject(f'{made["kind"]}{group} "{made["metadata"]["name"]}" is invalid: {text}')


def _fixed(stateful_set: Object) -> dict[str, Any]:
    return {key: value for key, value in stateful_set["spec"].items() if key not in _CHANGEABLE}


def _pod(spec: dict[str, Any], path: str = "spec") -> Iterator[str]:
    for number, toleration in enumerate(spec.get("tolerations") or ()):
        place = f"{path}.tolerations[{number}]"
        yield from _one_of(f"{place}.operator", toleration.get("operator", "Equal"), _OPERATORS)
        yield from _one_of(f"{place}.effect", toleration.get("effect") or _EFFECTS[0], _EFFECTS)
    yield from _ids(f"{path}.securityContext", spec.get("securityContext") or {})
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            yield from _container(f"{path}.{field}[{number}]", container)


def _container(path: str, container: dict[str, Any]) -> Iterator[str]:
    yield from _ids(f"{path}.securityContext", container.get("securityContext") or {})
    resources = container.get("resources") or {}
    requests, limits = (resources.get(field) or {} for field in ("requests", "limits"))
    for resource in ("cpu", "memory"):
        wanted, most = requests.get(resource), limits.get(resource)
        if wanted is not None and most is not None and quantity(wanted) > quantity(most):
            reason = f"must be less than or equal to {resource} limit of {most}"
            yield f'{path}.resources.requests: Invalid value: "{wanted}": {reason}'


def _ids(path: str, context: dict[str, Any]) -> Iterator[str]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field)
        if value is not None and not 0 <= value <= _LARGEST_ID:
            yield f"{path}.{field}: Invalid value: {value}: must be between 0 and {_LARGEST_ID}, inclusive"


def _one_of(path: str, value: str, supported: Iterable[str]) -> Iterator[str]:
    if value not in supported:
        listed = ", ".join(f'"{one}"' for one in supported)
        yield f'{path}: Unsupported value: "{value}": supported values: {listed}'


def _workload(spec: dict[str, Any]) -> Iterator[str]:
    replicas = spec.get("replicas", 1)
    if replicas < 0:
        yield f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
    yield from _pod(spec["template"].get("spec", {}), "spec.template.spec")


def _stateful_set(spec: dict[str, Any]) -> Iterator[str]:
    yield from _workload(spec)
    kind = spec.get("updateStrategy", {}).get("type", "RollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        yield f"spec.updateStrategy: Invalid value: \"{kind}\": must be 'RollingUpdate' or 'OnDelete'"


def _claim(spec: dict[str, Any]) -> Iterator[str]:
    name = spec.get("storageClassName") or ""
    if name and not _SUBDOMAIN.fullmatch(name):
        yield f'spec.storageClassName: Invalid value: "{name}": {_SUBDOMAIN_RULE}'


_CHECKS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "Pod": _pod,
    "Deployment": _workload,
    "StatefulSet": _stateful_set,
    "PersistentVolumeClaim": _claim,
}
