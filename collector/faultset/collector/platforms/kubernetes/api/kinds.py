"""Where the API server keeps objects of each kind."""

from __future__ import annotations

from faultset.collector.spec.features.operators import CustomResource
from faultset.core.errors import PlatformError

_CORE, _APPS = "/api/v1", "/apis/apps/v1"
_RBAC, _STORAGE = "/apis/rbac.authorization.k8s.io/v1", "/apis/storage.k8s.io/v1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1"

_PLURALS = {
    "Pod": (_CORE, "pods"),
    "Service": (_CORE, "services"),
    "Endpoints": (_CORE, "endpoints"),
    "ConfigMap": (_CORE, "configmaps"),
    "Secret": (_CORE, "secrets"),
    "ServiceAccount": (_CORE, "serviceaccounts"),
    "PersistentVolumeClaim": (_CORE, "persistentvolumeclaims"),
    "Event": (_CORE, "events"),
    "Deployment": (_APPS, "deployments"),
    "ReplicaSet": (_APPS, "replicasets"),
    "StatefulSet": (_APPS, "statefulsets"),
    "DaemonSet": (_APPS, "daemonsets"),
    "Role": (_RBAC, "roles"),
    "RoleBinding": (_RBAC, "rolebindings"),
}
_CLUSTER_WIDE = {
    "PersistentVolume": (_CORE, "persistentvolumes"),
    "Namespace": (_CORE, "namespaces"),
    "Node": (_CORE, "nodes"),
    "StorageClass": (_STORAGE, "storageclasses"),
    "CustomResourceDefinition": (_DEFINITIONS, "customresourcedefinitions"),
}


def path_of(kind: str, namespace: str, name: str | None = None, *, custom: CustomResource | None = None) -> str:
    """Return the path of a kind in a namespace, or of one object; the namespace is left out where there is none.

    Parameters
    ----------
    custom
        A kind that the application defines itself.
    """
    if custom is not None and kind == custom.kind:
        path = f"/apis/{custom.api_version}/namespaces/{namespace}/{custom.plural}"
    elif kind in _CLUSTER_WIDE:
        root, plural = _CLUSTER_WIDE[kind]
        path = f"{root}/{plural}"
    elif kind in _PLURALS:
        root, plural = _PLURALS[kind]
        path = f"{root}/namespaces/{namespace}/{plural}"
    else:
        raise PlatformError(f"objects of kind {kind} are not known; known are {', '.join([*_PLURALS, *_CLUSTER_WIDE])}")
    return path if name is None else f"{path}/{name}"


def api_version(kind: str, *, custom: CustomResource | None = None) -> str:
    """Return the `apiVersion` of a kind, which lists leave out of their items."""
    if custom is not None and kind == custom.kind:
        return custom.api_version
    root, _ = _PLURALS.get(kind) or _CLUSTER_WIDE[kind]
    return root.removeprefix("/apis/").removeprefix("/api/")
