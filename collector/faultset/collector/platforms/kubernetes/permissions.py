"""What the platform may do on a cluster: the rules of its role, in the order in which doctor checks them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str
    """What is impossible without it; completes "needed to"."""


_ALL = ("get", "list", "watch", "create", "patch", "delete")

ROLE_RULES: tuple[Rule, ...] = (
    Rule(
        group="",
        resources=("namespaces",),
        verbs=("get", "list", "create", "patch", "delete"),
        purpose="give every episode namespaces of its own",
    ),
    Rule(
        group="",
        resources=("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"),
        verbs=_ALL,
        purpose="deploy and change applications",
    ),
    Rule(group="", resources=("endpoints", "events"), verbs=("get", "list", "watch"), purpose="record what happens"),
    Rule(group="", resources=("pods/log",), verbs=("get",), purpose="record logs"),
    Rule(group="", resources=("pods/exec",), verbs=("get", "create"), purpose="run commands in pods"),
    Rule(group="", resources=("pods/proxy", "services/proxy"), verbs=("get", "create"), purpose="read telemetry"),
    Rule(group="", resources=("pods/resize",), verbs=("patch",), purpose="change limits of running pods"),
    Rule(group="", resources=("pods/ephemeralcontainers",), verbs=("patch",), purpose="disturb without an agent"),
    Rule(
        group="apps",
        resources=("deployments", "replicasets", "daemonsets"),
        verbs=_ALL,
        purpose="deploy and change applications",
    ),
    Rule(group="", resources=("persistentvolumes",), verbs=_ALL, purpose="make the stores' volumes"),
    Rule(group="", resources=("nodes",), verbs=("get", "list"), purpose="place pods and check for room"),
    Rule(
        group="authorization.k8s.io",
        resources=("selfsubjectaccessreviews",),
        verbs=("create",),
        purpose="check permissions",
    ),
)
