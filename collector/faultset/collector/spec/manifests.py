"""Kubernetes manifests of an application."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import (
    DATA_PATH,
    METRICS_PORT,
    SPEC_PATH,
    ConfigurationSource,
    ContainerFields,
    InitContainer,
    MountedFiles,
    config_data,
)
from faultset.collector.spec.credentials import credential_mount, credential_secrets, credential_volume, secrets_of_spec
from faultset.collector.spec.features import CustomResource, format_flags
from faultset.collector.spec.files import format_spec

Manifest = dict[str, Any]
_REFERENCES = {"ConfigMap": "configMap", "Secret": "secret"}
_RBAC = "rbac.authorization.k8s.io/v1"
_OPERATOR_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]


def manifests(app: AppSpec, *, telemetry_endpoint: str) -> list[Manifest]:
    """Return the application's objects in the order of creation, with new passwords for its stores.

    `telemetry_endpoint` is the base URL of the OTLP/HTTP receiver, reachable from pods.
    """
    services = app.services.values()
    claims = [_build_volume_and_claim(app, service, service.claim) for service in services if service.claim]
    direct = [service for service in services if service.name not in app.components]
    return [
        *(volume for volume, _ in claims),
        *(claim for _, claim in claims),
        _build_object("ConfigMap", config_name(app), data={"app.yaml": format_spec(app)}),
        *flag_manifests(app),
        *(_build_object("ConfigMap", name, data=config_data(texts)) for name, texts in app.configs.items()),
        *credential_secrets(app),
        *secrets_of_spec(app),
        *operator_manifests(app),
        *(manifest for service in direct for manifest in service_manifests(app, service)),
        *(workload(app, service, telemetry_endpoint) for service in direct),
        *custom_resources(app),
    ]


def _build_object(
    kind: str, name: str, labels: dict[str, str] | None = None, *, api: str = "v1", **fields: Any
) -> Manifest:
    metadata = {"name": name} if labels is None else {"name": name, "labels": labels}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


def _build_labels(app: AppSpec, service: ServiceSpec) -> dict[str, str]:
    return {app.label_key: service.name}


def _build_volume_and_claim(app: AppSpec, service: ServiceSpec, claim: str) -> tuple[Manifest, Manifest]:
    name, labels = claim.removesuffix("-pvc"), _build_labels(app, service)
    shared: Manifest = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"{name}-storage"}
    volume = {
        "capacity": {"storage": "1Gi"},
        "volumeMode": "Filesystem",
        "accessModes": shared["accessModes"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": shared["storageClassName"],
        "hostPath": {"path": f"/data/volumes/{name}-pv", "type": "DirectoryOrCreate"},
    }
    resources = {"requests": {"storage": "1Gi"}}
    return (
        _build_object("PersistentVolume", f"{name}-pv", labels, spec=volume),
        _build_object("PersistentVolumeClaim", claim, labels, spec={**shared, "resources": resources}),
    )


def flag_manifests(app: AppSpec) -> list[Manifest]:
    """Return the ConfigMap with the application's feature flags, if it has any."""
    flags = app.flags
    return (
        [] if flags is None else [_build_object("ConfigMap", flags.config_map, data={flags.file: format_flags(flags)})]
    )


def service_manifests(app: AppSpec, service: ServiceSpec) -> list[Manifest]:
    """Return the Service, and the headless Service of a stateful service; none without a port."""
    if not service.port:
        return []
    labels = _build_labels(app, service)
    ports = [{"name": str(service.port), "protocol": "TCP", "port": service.port, "targetPort": service.port}]
    spec = {"type": "ClusterIP", "selector": labels, "ports": ports}
    manifest = _build_object("Service", service.name, labels, spec=spec)
    if not service.stateful:
        return [manifest]
    peers = {**spec, "clusterIP": "None", "publishNotReadyAddresses": True}
    return [manifest, _build_object("Service", service.peers, labels, spec=peers)]


def workload(app: AppSpec, service: ServiceSpec, telemetry_endpoint: str) -> Manifest:
    """Return the Deployment or StatefulSet of a service; see `manifests` for the parameters."""
    labels = _build_labels(app, service)
    if service.stateful:
        kind, fields = "StatefulSet", _build_stateful_fields(service)
    else:
        strategy = "Recreate" if service.kind == "database" else "RollingUpdate"
        kind, fields = "Deployment", {"strategy": {"type": strategy}}
    spec = {
        "replicas": service.replicas,
        "selector": {"matchLabels": labels},
        **fields,
        "template": pod_template(app, service, telemetry_endpoint),
    }
    return _build_object(kind, service.name, labels, api="apps/v1", spec=spec)


def _build_stateful_fields(service: ServiceSpec) -> Manifest:
    fields: Manifest = {"serviceName": service.peers, "updateStrategy": {"type": "RollingUpdate"}}
    if service.storage is not None:
        resources = {"requests": {"storage": service.storage.size}}
        spec: Manifest = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        if service.storage.storage_class is not None:
            spec["storageClassName"] = service.storage.storage_class
        fields["volumeClaimTemplates"] = [{"metadata": {"name": service.storage.name}, "spec": spec}]
    return fields


def config_name(app: AppSpec) -> str:
    return f"{app.name}-config"


def pod_template(app: AppSpec, service: ServiceSpec, telemetry_endpoint: str) -> Manifest:
    """Return the template of a service's pods; see `manifests` for the parameters."""
    files = _build_file_volumes([service, *service.init])
    init = [_build_init_container(app, container, files) for container in service.init]
    return {
        "metadata": {"labels": {app.label_key: service.name}, "annotations": _build_annotations(service)},
        "spec": {
            "restartPolicy": "Always",
            "enableServiceLinks": False,
            **({"initContainers": init} if init else {}),
            "containers": [_build_container(app, service, files, telemetry_endpoint)],
            "volumes": [*_build_volumes(app, service), *({"name": name, **volume} for name, volume in files)],
            **_build_account(app, service),
        },
    }


def _reads_flags(app: AppSpec, service: ServiceSpec) -> bool:
    """Return whether a service mounts the flag file: only the provider, or every service without a provider."""
    if app.flags is None or not service.runs_faultset_service:
        return False
    return app.flags.provider in (None, service.name)


def _build_account(app: AppSpec, service: ServiceSpec) -> Manifest:
    """Return the service account of an operator's pod; empty for other pods."""
    return {"serviceAccountName": service.name} if app.operator and app.operator.service == service.name else {}


def _build_probes(service: ServiceSpec) -> Manifest:
    probes: Manifest = {}
    for field, probe in (("readinessProbe", service.readiness), ("livenessProbe", service.liveness)):
        if probe is not None:
            port: Manifest = {"port": probe.port or service.port}
            action = {"tcpSocket": port} if probe.path is None else {"httpGet": {"path": probe.path, **port}}
            probes[field] = {
                **action,
                "initialDelaySeconds": probe.delay_s,
                "periodSeconds": probe.every_s,
                "timeoutSeconds": probe.timeout_s,
                "failureThreshold": probe.failures,
                "successThreshold": probe.successes,
            }
    return probes


def _build_annotations(service: ServiceSpec) -> dict[str, str]:
    port = METRICS_PORT if service.exports_metrics else service.metrics_port
    if port is None:
        return {}
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


def _build_container(
    app: AppSpec, service: ServiceSpec, files: Iterable[tuple[str, Manifest]], telemetry_endpoint: str
) -> Manifest:
    mounts = [{"name": "config", "mountPath": SPEC_PATH.rpartition("/")[0], "readOnly": True}]
    if service.claim or service.storage:
        mounts.append({"name": service.storage.name if service.storage else "data", "mountPath": DATA_PATH})
    if credential_volume(app, service):
        mounts.append(credential_mount())
    if app.flags is not None and _reads_flags(app, service):
        mounts.append({"name": "flags", "mountPath": app.flags.folder, "readOnly": True})
    return {
        "name": service.container,
        "image": service.image or app.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(service.program),
        "ports": [{"containerPort": service.port, "protocol": "TCP"}] if service.port else [],
        **_build_environment_from(service),
        "env": [
            *([_build_field_variable("POD_NAMESPACE", "metadata.namespace")] if _build_account(app, service) else []),
            *_POD_VARIABLES,
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": telemetry_endpoint},
            *_build_environment(service),
        ],
        "resources": service.resources(),
        "volumeMounts": [*mounts, *_build_file_mounts(service, files)],
        **_build_probes(service),
    }


def _build_init_container(app: AppSpec, init: InitContainer, files: Iterable[tuple[str, Manifest]]) -> Manifest:
    command = list(init.program)
    if init.wait_for is not None:
        command = ["faultset-wait", f"{init.wait_for}:{app.services[init.wait_for].port}"]
    return {
        "name": init.name,
        "image": init.image or app.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        **_build_environment_from(init),
        "env": [*_POD_VARIABLES, *_build_environment(init)],
        "resources": init.resources(),
        "volumeMounts": list(_build_file_mounts(init, files)),
    }


def _build_field_variable(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


_POD_VARIABLES = (
    _build_field_variable("POD_NAME", "metadata.name"), _build_field_variable("POD_IP", "status.podIP"),
)  # fmt: skip


def _build_environment(container: ContainerFields) -> Iterator[Manifest]:
    for name, variable in container.environment.items():
        if variable.source is None:
            yield {"name": name, "value": variable.value}
        else:
            reference = {"name": variable.source, "key": variable.key, **_build_optional(variable)}
            yield {"name": name, "valueFrom": {f"{_REFERENCES[variable.kind]}KeyRef": reference}}


def _build_environment_from(container: ContainerFields) -> Manifest:
    groups = [
        {
            **({"prefix": group.prefix} if group.prefix else {}),
            f"{_REFERENCES[group.kind]}Ref": {"name": group.source, **_build_optional(group)},
        }
        for group in container.environment_from
    ]
    return {"envFrom": groups} if groups else {}


def _build_file_volumes(containers: Iterable[ContainerFields]) -> list[tuple[str, Manifest]]:
    """Return the distinct volumes of ConfigMaps and Secrets that containers mount, each with a name."""
    volumes: list[Manifest] = []
    for container in containers:
        volumes += [volume for volume in map(_build_file_volume, container.files.values()) if volume not in volumes]
    return [(f"files-{number}", volume) for number, volume in enumerate(volumes)]


def _build_file_volume(mounted: MountedFiles) -> Manifest:
    name = {"name": mounted.source} if mounted.kind == "ConfigMap" else {"secretName": mounted.source}
    items = [{"key": key, "path": path} for key, path in mounted.items.items()]
    return {_REFERENCES[mounted.kind]: {**name, **({"items": items} if items else {}), **_build_optional(mounted)}}


def _build_file_mounts(container: ContainerFields, files: Iterable[tuple[str, Manifest]]) -> Iterator[Manifest]:
    for path, mounted in container.files.items():
        name = next(name for name, volume in files if volume == _build_file_volume(mounted))
        yield {"name": name, "mountPath": path, "readOnly": True}


def _build_optional(source: ConfigurationSource) -> Manifest:
    return {"optional": True} if source.optional else {}


def _build_volumes(app: AppSpec, service: ServiceSpec) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "config", "configMap": {"name": config_name(app)}}]
    if service.claim:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": service.claim}})
    if credentials := credential_volume(app, service):
        volumes.append(credentials)
    if app.flags is not None and _reads_flags(app, service):
        volumes.append({"name": "flags", "configMap": {"name": app.flags.config_map}})
    return volumes


def operator_manifests(app: AppSpec) -> list[Manifest]:
    """Return the custom resource's definition and the operator's account and role; empty without an operator."""
    definition = resource_definition(app)
    if definition is None:
        return []
    assert app.operator is not None
    assert app.operator.service is not None
    name = app.operator.service
    role = {"apiGroup": _RBAC.partition("/")[0], "kind": "Role", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name}]
    return [
        definition,
        _build_object("ServiceAccount", name),
        _build_object("Role", name, api=_RBAC, rules=operator_rules(app.operator.resource)),
        _build_object("RoleBinding", name, api=_RBAC, roleRef=role, subjects=subjects),
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
    spec = {**resource.spec, **components}
    return [_build_object(resource.kind, resource.name, api=resource.api_version, spec=spec)]


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
    properties = {"spec": any_object, "status": any_object}
    names = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "shortNames": list(resource.short),
    }
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    spec = {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]}
    name, api = f"{resource.plural}.{resource.group}", "apiextensions.k8s.io/v1"
    return _build_object("CustomResourceDefinition", name, api=api, spec=spec)
