"""Manifests of an operator: the definition of its custom resource, its permissions, and the resource."""

from __future__ import annotations

from typing import Any

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.features.operators import CustomResource

Manifest = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io/v1"
_OPERATOR_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]


def operator_manifests(app: AppSpec) -> list[Manifest]:
    """Return the custom resource's definition and the operator's account and role; empty without an operator."""
    definition = resource_definition(app)
    if definition is None:
        return []
    assert app.operator is not None
    assert app.operator.service is not None
    name = app.operator.service
    role = {"apiGroup": _RBAC.partition("/")[0], "kind": "Role", "name": name}
    return [
        definition,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {
            "apiVersion": _RBAC,
            "kind": "Role",
            "metadata": {"name": name},
            "rules": operator_rules(app.operator.resource),
        },
        {
            "apiVersion": _RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]


def operator_rules(resource: CustomResource) -> list[Manifest]:
    """Return the rules of an operator's role in its namespace."""
    plural = resource.plural
    resources = [plural, f"{plural}/status", f"{plural}/finalizers"]
    return [
        {"apiGroups": [resource.group], "resources": resources, "verbs": _OPERATOR_VERBS},
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": _OPERATOR_VERBS},
        {"apiGroups": [""], "resources": ["services", "persistentvolumeclaims", "pods"], "verbs": _OPERATOR_VERBS},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]


def custom_resources(app: AppSpec) -> list[Manifest]:
    """Return the custom resource, built from the services of its components; empty without an operator."""
    if app.operator is None:
        return []
    resource = app.operator.resource
    components = {name: _build_component(app, app.services[name], resource.spec) for name in app.operator.components}
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": resource.name},
            "spec": {**resource.spec, **components},
        }
    ]


def _build_component(app: AppSpec, service: ServiceSpec, spec: Manifest) -> Manifest:
    resources = service.resources()
    component: Manifest = {
        **spec.get(service.name, {}),
        "image": service.image or app.image,
        "replicas": service.replicas,
        **resources,
    }
    if service.storage is not None:
        resources["requests"]["storage"] = service.storage.size
        if service.storage.storage_class is not None:
            component["storageClassName"] = service.storage.storage_class
    return component


def resource_definition(app: AppSpec) -> Manifest | None:
    """Return the definition of the custom resource; None if the application deploys no operator."""
    if app.operator is None or app.operator.service is None:
        return None
    resource = app.operator.resource
    any_object: Manifest = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(resource.short),
            },
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": any_object, "status": any_object}}
                    },
                }
            ],
        },
    }
