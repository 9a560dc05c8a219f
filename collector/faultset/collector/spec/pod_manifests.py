"""Pod templates in the manifests of an application: containers, environment, probes and volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import DATA_PATH, METRICS_PORT, SPEC_PATH
from faultset.collector.spec.credentials import credential_mount, credential_volume
from faultset.collector.spec.features.configuration import ConfigurationSource, MountedFiles, Variable
from faultset.collector.spec.features.pods import ContainerFields, InitContainer

Manifest = dict[str, Any]


def config_name(app: AppSpec) -> str:
    """Return the name of the ConfigMap with the spec."""
    return f"{app.name}-config"


def pod_template(app: AppSpec, service: ServiceSpec, telemetry_endpoint: str) -> Manifest:
    """Return the template of a service's pods; see `manifests.manifests` for the parameters."""
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
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


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
            *(
                [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]
                if _build_account(app, service)
                else []
            ),
            *_POD_VARIABLES,
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": telemetry_endpoint},
            *_build_environment(service),
        ],
        "resources": service.resources(),
        "volumeMounts": [*mounts, *_build_file_mounts(service, files)],
        **_build_probes(service),
    }


def _build_init_container(app: AppSpec, init: InitContainer, files: Iterable[tuple[str, Manifest]]) -> Manifest:
    awaited_service = None if init.wait_for is None else app.services[init.wait_for]
    return {
        "name": init.name,
        "image": init.image or app.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(init.program)
        if awaited_service is None
        else [_WAIT_PROGRAM, f"{awaited_service.name}:{awaited_service.port}"],
        **_build_environment_from(init),
        "env": [*_POD_VARIABLES, *_build_environment(init)],
        "resources": init.resources(),
        "volumeMounts": list(_build_file_mounts(init, files)),
    }


_WAIT_PROGRAM = "faultset-wait"
"""The program that waits until a service accepts connections."""
_POD_VARIABLES = (
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
)


def _build_environment(container: ContainerFields) -> Iterator[Manifest]:
    for name, variable in container.environment.items():
        yield {"name": name, **_build_value(variable)}


def _build_value(variable: Variable) -> Manifest:
    if variable.source is None:
        return {"value": variable.value}
    reference = {"name": variable.source, "key": variable.key, **_build_optional(variable)}
    return {"valueFrom": {f"{_REFERENCES[variable.kind]}KeyRef": reference}}


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


_REFERENCES = {"ConfigMap": "configMap", "Secret": "secret"}


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
