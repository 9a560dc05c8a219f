"""What an operator does on the platform in memory: workloads and claims follow the custom resource."""

from __future__ import annotations

from faultset.collector.platforms.api.objects import Object, copied
from faultset.collector.spec.app import AppSpec

Objects = dict[tuple[str, str], Object]


def follow_custom_resource(app: AppSpec, objects: Objects) -> None:
    """Bring replicas and storage classes of an operator's components in line with its custom resource."""
    if app.operator is None:
        return
    resource = objects.get((app.operator.resource.kind, app.operator.resource.name))
    for component in app.components:
        workload = objects.get(("StatefulSet", component))
        if resource is None or workload is None:
            continue
        wanted = resource["spec"].get(component) or {}
        workload["spec"]["replicas"] = wanted.get("replicas", workload["spec"]["replicas"])
        for claim in workload["spec"].get("volumeClaimTemplates", ()):
            claim["spec"].pop("storageClassName", None)
            if wanted.get("storageClassName"):
                claim["spec"]["storageClassName"] = wanted["storageClassName"]
            _claim(objects, workload, claim)


def _claim(objects: Objects, workload: Object, template: Object) -> None:
    """Give the first pod of a set a claim, another one when its volumes were replaced."""
    name = f"{template['metadata']['name']}-{workload['metadata']['name']}-0"
    found = objects.get(("PersistentVolumeClaim", name))
    if found is not None and found["spec"] == template["spec"]:
        return
    objects["PersistentVolumeClaim", name] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": dict(workload["metadata"].get("labels", {}))},
        "spec": copied(template["spec"]),
        "status": {"phase": "Bound"},
    }
