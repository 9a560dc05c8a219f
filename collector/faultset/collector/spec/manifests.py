"""Kubernetes manifests of an application."""

from __future__ import annotations

from typing import Any

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.credentials import credential_secrets, secrets_of_spec
from faultset.collector.spec.custom_resources import custom_resources, operator_manifests
from faultset.collector.spec.features.behaviour import format_flags
from faultset.collector.spec.features.configuration import config_data
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.pod_manifests import config_name, pod_template

Manifest = dict[str, Any]


def manifests(app: AppSpec, *, telemetry_endpoint: str) -> list[Manifest]:
    """Return the application's objects in the order of creation, with new passwords for its stores.

    Parameters
    ----------
    telemetry_endpoint:
        Base URL of the OTLP/HTTP receiver, reachable from pods.
    """
    services = app.services.values()
    claims = [service for service in services if service.claim]
    direct = [service for service in services if service.name not in app.components]
    return [
        *(_build_volume(app, service) for service in claims),
        *(_build_claim(app, service) for service in claims),
        _build_config(app),
        *flag_manifests(app),
        *config_manifests(app),
        *credential_secrets(app),
        *secrets_of_spec(app),
        *operator_manifests(app),
        *(manifest for service in direct for manifest in service_manifests(app, service)),
        *(workload(app, service, telemetry_endpoint) for service in direct),
        *custom_resources(app),
    ]


def _build_labels(app: AppSpec, service: ServiceSpec) -> dict[str, str]:
    return {app.label_key: service.name}


def _get_storage_class(service: ServiceSpec) -> str:
    assert service.claim is not None
    return f"{service.claim.removesuffix('-pvc')}-storage"


def volume_name(service: ServiceSpec) -> str:
    """Return the name of the PersistentVolume for a database's claim."""
    assert service.claim is not None
    return f"{service.claim.removesuffix('-pvc')}-pv"


def _build_volume(app: AppSpec, service: ServiceSpec) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(service), "labels": _build_labels(app, service)},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": _get_storage_class(service),
            "hostPath": {"path": f"/data/volumes/{volume_name(service)}", "type": "DirectoryOrCreate"},
        },
    }


def _build_claim(app: AppSpec, service: ServiceSpec) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": service.claim, "labels": _build_labels(app, service)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": _get_storage_class(service),
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def _build_config(app: AppSpec) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_name(app)},
        "data": {"app.yaml": format_spec(app)},
    }


def flag_manifests(app: AppSpec) -> list[Manifest]:
    """Return the ConfigMap with the application's feature flags, if it has any."""
    if app.flags is None:
        return []
    metadata = {"name": app.flags.config_map}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {app.flags.file: format_flags(app.flags)},
        }
    ]


def config_manifests(app: AppSpec) -> list[Manifest]:
    """Return the ConfigMaps in the spec."""
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": config_data(texts)}
        for name, texts in app.configs.items()
    ]


def service_manifests(app: AppSpec, service: ServiceSpec) -> list[Manifest]:
    """Return the Service, and the headless Service of a stateful service; none without a port."""
    if not service.port:
        return []
    metadata = {"name": service.name, "labels": _build_labels(app, service)}
    ports = [{"name": str(service.port), "protocol": "TCP", "port": service.port, "targetPort": service.port}]
    base: Manifest = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    manifest = {**base, "spec": {"type": "ClusterIP", "selector": _build_labels(app, service), "ports": ports}}
    if not service.stateful:
        return [manifest]
    peers = {**manifest["spec"], "clusterIP": "None", "publishNotReadyAddresses": True}
    return [manifest, {**base, "metadata": {**metadata, "name": service.peers}, "spec": peers}]


def workload(app: AppSpec, service: ServiceSpec, telemetry_endpoint: str) -> Manifest:
    """Return the Deployment or StatefulSet of a service; see `manifests` for the parameters."""
    if service.stateful:
        kind, fields = "StatefulSet", _build_stateful_fields(service)
    else:
        strategy = "Recreate" if service.kind == "database" else "RollingUpdate"
        kind, fields = "Deployment", {"strategy": {"type": strategy}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": service.name, "labels": _build_labels(app, service)},
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": _build_labels(app, service)},
            **fields,
            "template": pod_template(app, service, telemetry_endpoint),
        },
    }


def _build_stateful_fields(service: ServiceSpec) -> Manifest:
    fields: Manifest = {"serviceName": service.peers, "updateStrategy": {"type": "RollingUpdate"}}
    if service.storage is not None:
        resources = {"requests": {"storage": service.storage.size}}
        spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        if service.storage.storage_class is not None:
            spec["storageClassName"] = service.storage.storage_class
        fields["volumeClaimTemplates"] = [{"metadata": {"name": service.storage.name}, "spec": spec}]
    return fields
