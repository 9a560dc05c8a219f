"""What a container gets from its pod's spec: environment, mounts, limits, image."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.local.controllers.commands import Mount
from faultset.collector.platforms.observation.quantities import quantity
from faultset.collector.runtime.builds import TAGS
from faultset.collector.spec.containers import APP_REPOSITORY, PAUSE_REPOSITORY


class MissingReference(Exception):
    """A ConfigMap, Secret or key that a pod refers to does not exist."""


def image_repository(image: str) -> tuple[str, str]:
    """Split an image into repository and tag; a registry in front and a missing tag are understood."""
    name, _, tag = image.rpartition(":") if ":" in image.rsplit("/", 1)[-1] else (image, "", "latest")
    return name.removeprefix("docker.io/"), tag


def is_known_image(image: str) -> bool:
    """Say whether the node has an image; of the application it has all builds that exist."""
    repository, tag = image_repository(image)
    return repository == PAUSE_REPOSITORY or (repository == APP_REPOSITORY and tag in TAGS)


def definition(container: dict[str, Any]) -> str:
    """Return a digest of the part of a container whose change restarts it; limits change in place."""
    parts = {key: value for key, value in container.items() if key != "resources"}
    return f"{zlib.crc32(json.dumps(parts, sort_keys=True).encode()):08x}"


def limits(container: dict[str, Any]) -> tuple[float | None, int | None]:
    """Return a container's limits in cores and bytes."""
    found = (container.get("resources") or {}).get("limits") or {}
    cpu = quantity(found["cpu"]) if "cpu" in found else None
    memory = int(quantity(found["memory"])) if "memory" in found else None
    return cpu, memory


def mounts(store: ObjectStore, pod: Object, container: dict[str, Any]) -> tuple[Mount, ...]:
    """Return what a container mounts.

    Raises
    ------
    MissingReference
        A ConfigMap or Secret does not exist and is not optional.
    """
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    return tuple(
        _mount(store, pod, volumes[mount["name"]], mount["mountPath"]) for mount in container.get("volumeMounts", [])
    )


def _mount(store: ObjectStore, pod: Object, volume: dict[str, Any], path: str) -> Mount:
    if "configMap" in volume:
        return Mount(path=path, files=_volume_files(store, "ConfigMap", volume["configMap"]["name"], volume))
    if "secret" in volume:
        return Mount(path=path, files=_volume_files(store, "Secret", volume["secret"]["secretName"], volume))
    if "persistentVolumeClaim" in volume:
        claim = store.get("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        return Mount(path=path, volume=claim["spec"]["volumeName"])
    return Mount(path=path, volume=f"pod/{pod['metadata']['uid']}/{volume['name']}")


def _volume_files(store: ObjectStore, kind: str, name: str, volume: dict[str, Any]) -> dict[str, str]:
    source = volume["configMap" if kind == "ConfigMap" else "secret"]
    where = f'volume "{volume["name"]}" : '
    try:
        data = _texts(store, kind, name, is_optional=bool(source.get("optional")))
    except MissingReference as missing:
        raise MissingReference(f"{where}{missing}") from None
    if not source.get("items"):
        return data
    absent = [item["key"] for item in source["items"] if item["key"] not in data]
    if absent and not source.get("optional"):
        what = "configmap references non-existent config" if kind == "ConfigMap" else "references non-existent secret"
        raise MissingReference(f"{where}{what} key: {absent[0]}")
    return {item["path"]: data[item["key"]] for item in source["items"] if item["key"] in data}


def _texts(store: ObjectStore, kind: str, name: str, *, is_optional: bool) -> dict[str, str]:
    found = store.find(kind, name)
    if found is not None:
        return contents(found)
    if is_optional:
        return {}
    raise MissingReference(f'{kind.lower()} "{name}" not found')


def contents(found: Object) -> dict[str, str]:
    """Return the texts of a ConfigMap or Secret by key."""
    if found["kind"] == "ConfigMap":
        return dict(found.get("data") or {})
    return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}


def environment(store: ObjectStore, pod: Object, container: dict[str, Any], address: str) -> dict[str, str]:
    """Return a container's environment with all references resolved.

    Raises
    ------
    MissingReference
        A ConfigMap, Secret or key does not exist and is not optional.
    """
    made: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        kind, reference = ("ConfigMap", "configMapRef") if "configMapRef" in source else ("Secret", "secretRef")
        wanted, prefix = source[reference], source.get("prefix") or ""
        texts = _texts(store, kind, wanted["name"], is_optional=bool(wanted.get("optional")))
        made |= {f"{prefix}{key}": text for key, text in texts.items()}
    for variable in container.get("env") or []:
        origin = variable.get("valueFrom")
        value = variable.get("value", "") if origin is None else _resolve(store, pod, origin, address)
        if value is not None:
            made[variable["name"]] = str(value)
    return made


def _resolve(store: ObjectStore, pod: Object, origin: dict[str, Any], address: str) -> str | None:
    if "fieldRef" in origin:
        return _field(pod, origin["fieldRef"]["fieldPath"], address)
    kind, reference = (
        ("ConfigMap", origin["configMapKeyRef"]) if "configMapKeyRef" in origin else ("Secret", origin["secretKeyRef"])
    )
    data = _texts(store, kind, reference["name"], is_optional=bool(reference.get("optional")))
    if reference["key"] in data or reference.get("optional"):
        return data.get(reference["key"])
    place = f"{pod['metadata']['namespace']}/{reference['name']}"
    raise MissingReference(f"couldn't find key {reference['key']} in {kind} {place}")


def _field(pod: Object, path: str, address: str) -> str:
    if path in ("status.podIP", "status.hostIP"):
        return address
    found: Any = pod
    for part in path.replace("['", ".").replace("']", "").split("."):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, str) else ""
