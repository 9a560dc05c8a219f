"""The objects that run a node agent on every node of a cluster."""

from __future__ import annotations

from typing import Any

from faultset.collector.agent.protocol import SOCKET, VOLUME_ROOT
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.namespaces import MANAGED
from faultset.collector.platforms.kubernetes.impairments.impairer import PROGRAM

AGENT_NAME = "faultset-agent"
AGENT_LABELS = {**MANAGED, "app.kubernetes.io/name": AGENT_NAME}
_LOGS = "/var/log/pods"


def agent_manifests(*, namespace: str, image: str, app_namespace: str) -> list[Object]:
    """Return the objects that run one agent on every node.

    Parameters
    ----------
    namespace
        Ours, which must allow privileged pods.
    app_namespace
        The only one whose pods the agents touch.
    """
    metadata = {"name": AGENT_NAME, "namespace": namespace, "labels": dict(AGENT_LABELS)}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": dict(AGENT_LABELS)},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
                "template": {"metadata": {"labels": dict(AGENT_LABELS)}, "spec": _pod(image, app_namespace)},
            },
        },
    ]


def _pod(image: str, app_namespace: str) -> dict[str, Any]:
    return {
        "hostPID": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [
            {
                "name": "agent",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": [*PROGRAM, "watch", app_namespace],
                "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False},
                "resources": {
                    "requests": {"cpu": "5m", "memory": "24Mi"},
                    "limits": {"cpu": "1", "memory": "128Mi"},
                },
                "readinessProbe": {"exec": {"command": ["test", "-S", SOCKET]}, "periodSeconds": 2},
                "volumeMounts": [
                    {"name": "volumes", "mountPath": VOLUME_ROOT},
                    {"name": "logs", "mountPath": _LOGS, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "volumes", "hostPath": {"path": VOLUME_ROOT, "type": "DirectoryOrCreate"}},
            {"name": "logs", "hostPath": {"path": _LOGS, "type": "DirectoryOrCreate"}},
        ],
    }
