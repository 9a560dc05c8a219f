"""Services: an address for each, and the Endpoints behind it."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import is_active, is_ready
from faultset.collector.platforms.local.api_server.object_store import owner_reference
from faultset.collector.platforms.local.controllers.context import Context

HEADLESS = "None"
"""Address of a Service that has none: its name, and names of its own for pods, lead to pods themselves."""


def reconcile_services(context: Context) -> None:
    """Give every Service an address and keep its Endpoints current."""
    for service in context.store.each("Service"):
        name = service["metadata"]["name"]
        if not service["spec"].get("clusterIP"):
            service = context.store.patch("Service", name, {"spec": {"clusterIP": context.service_address()}})
        subsets = _subsets(context, service)
        found = context.store.find("Endpoints", name)
        if found is None:
            made: dict[str, Any] = {
                "apiVersion": "v1",
                "kind": "Endpoints",
                "metadata": {
                    "name": name,
                    "labels": service["metadata"].get("labels", {}),
                    "ownerReferences": [owner_reference(service)],
                },
                "subsets": subsets,
            }
            context.store.create(made)
        elif found["subsets"] != subsets:
            context.store.patch("Endpoints", name, {"subsets": subsets})


def _subsets(context: Context, service: Object) -> list[dict[str, Any]]:
    selector = service["spec"].get("selector")
    if not selector:
        return []
    ready, waiting, example = [], [], None
    for pod in context.store.each("Pod", selector):
        address = pod.get("status", {}).get("podIP")
        if address and is_active(pod):
            example = pod
            reference = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            (ready if is_ready(pod) else waiting).append({"ip": address, "targetRef": reference})
    if example is None:
        return []
    ports = [
        {"name": port.get("name", ""), "port": target_port(port, example), "protocol": port["protocol"]}
        for port in service["spec"].get("ports", [])
    ]
    return [{"addresses": ready, "notReadyAddresses": waiting, "ports": ports}]


def target_port(port: dict[str, Any], pod: Object) -> int:
    """Return the number of a Service port's target; 0 when the pod has no port of that name."""
    target = port["targetPort"]
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for declared in container.get("ports", []):
            if declared.get("name") == target:
                return declared["containerPort"]
    return int(target) if str(target).isdigit() else 0
