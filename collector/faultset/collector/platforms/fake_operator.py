"""What an operator does on the platform in memory: workloads and claims follow the custom resource."""

from __future__ import annotations

from faultset.collector.platforms.api.objects import Object, copied
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.spec.app import AppSpec


def follow_custom_resource(app: AppSpec, store: ObjectStore) -> bool:
    """Bring replicas and storage classes of an operator's components in line; return whether something changed."""
    if app.operator is None:
        return False
    resource = store.find(app.operator.resource.kind, app.operator.resource.name)
    before = store.version
    for component in app.components if resource is not None else ():
        workload = store.find("StatefulSet", component)
        if workload is None:
            continue
        wish = resource["spec"].get(component) or {}
        changed = copied(workload)
        changed["spec"]["replicas"] = wish.get("replicas", changed["spec"]["replicas"])
        for claim in changed["spec"].get("volumeClaimTemplates", ()):
            claim["spec"].pop("storageClassName", None)
            if wish.get("storageClassName"):
                claim["spec"]["storageClassName"] = wish["storageClassName"]
        if changed["spec"].get("volumeClaimTemplates") != workload["spec"].get("volumeClaimTemplates"):
            _replace(store, changed)
        elif changed["spec"] != workload["spec"]:
            store.patch("StatefulSet", component, {"spec": {"replicas": changed["spec"]["replicas"]}})
    return store.version != before


def _replace(store: ObjectStore, workload: Object) -> None:
    """Make a set again whose volumes are others, with new claims."""
    name = workload["metadata"]["name"]
    store.remove("StatefulSet", name)
    for pod in store.list("Pod"):
        if pod["metadata"]["name"].rpartition("-")[0] == name:
            store.remove("Pod", pod["metadata"]["name"])
    for template in workload["spec"]["volumeClaimTemplates"]:
        store.remove("PersistentVolumeClaim", f"{template['metadata']['name']}-{name}-0")
    store.create({key: value for key, value in workload.items() if key != "status"})
