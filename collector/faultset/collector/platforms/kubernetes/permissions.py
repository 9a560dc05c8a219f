"""What the account of a kubeconfig may do on a cluster, and what it must be allowed to do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.spec.custom_resources import operator_rules
from faultset.collector.spec.features.operators import CustomResource
from faultset.core.errors import PlatformError

_AT_ONCE = 8


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
        resources=("services", "configmaps", "persistentvolumeclaims"),
        verbs=_ALL,
        purpose="deploy and change applications",
    ),
    Rule(group="", resources=("pods",), verbs=(*_ALL, "deletecollection"), purpose="run, watch and end pods"),
    Rule(group="", resources=("secrets",), verbs=("get", "create", "patch"), purpose="keep the passwords of stores"),
    Rule(group="", resources=("endpoints", "events"), verbs=("get", "list", "watch"), purpose="record what happens"),
    Rule(group="", resources=("pods/log",), verbs=("get",), purpose="record logs"),
    Rule(group="", resources=("pods/exec",), verbs=("get", "create"), purpose="run commands in pods"),
    Rule(group="", resources=("pods/proxy", "services/proxy"), verbs=("get", "create"), purpose="read telemetry"),
    Rule(group="", resources=("pods/resize",), verbs=("patch",), purpose="change limits of running pods"),
    Rule(group="", resources=("pods/ephemeralcontainers",), verbs=("patch",), purpose="disturb without an agent"),
    Rule(
        group="apps",
        resources=("deployments", "replicasets", "statefulsets", "daemonsets"),
        verbs=_ALL,
        purpose="deploy and change workloads",
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


OPERATOR_RULES: tuple[Rule, ...] = (
    Rule(
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("get", "create", "patch", "delete"),
        purpose="define custom resources",
    ),
    Rule(
        group="storage.k8s.io",
        resources=("storageclasses",),
        verbs=("list",),
        purpose="see whether the cluster makes volumes by itself",
    ),
    Rule(group="", resources=("serviceaccounts",), verbs=("create", "patch"), purpose="give operators an account"),
    Rule(
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
        verbs=("create", "patch"),
        purpose="give operators their rights",
    ),
    Rule(group="", resources=("events",), verbs=("create", "patch"), purpose="let operators tell what happens"),
    Rule(
        group="",
        resources=("services", "persistentvolumeclaims", "pods"),
        verbs=("update",),
        purpose="let operators change what they made",
    ),
    Rule(group="apps", resources=("statefulsets",), verbs=("update",), purpose="let operators update workloads"),
)
"""What applications with an operator of ours need besides, for nobody may give an operator more than he has."""


def operator_permissions(resource: CustomResource) -> tuple[Rule, ...]:
    """Return what the deployment of an application with an operator needs beyond `ROLE_RULES`."""
    (own,) = [rule for rule in operator_rules(resource) if rule["apiGroups"] == [resource.group]]
    purpose = f"use objects of kind {resource.kind}"
    custom = Rule(group=resource.group, resources=tuple(own["resources"]), verbs=tuple(own["verbs"]), purpose=purpose)
    return (*OPERATOR_RULES, custom)


def missing_permissions(api: Api, rules: Sequence[Rule] = ROLE_RULES) -> list[tuple[Rule, str, list[str]]]:
    """Return what the user may not do: rule, resource and the verbs that are refused.

    Asked for all namespaces at once, because those of the episodes do not exist yet.
    """
    asked = [(rule, resource, verb) for rule in rules for resource in rule.resources for verb in rule.verbs]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        allowed = list(pool.map(lambda one: _is_allowed(api, *one), asked))
    missing: dict[tuple[Rule, str], list[str]] = {}
    for (rule, resource, verb), ok in zip(asked, allowed, strict=True):
        if not ok:
            missing.setdefault((rule, resource), []).append(verb)
    return [(rule, resource, verbs) for (rule, resource), verbs in missing.items()]


def check_permissions(api: Api) -> None:
    """Raise PlatformError when the user may not do all that episodes need."""
    missing = missing_permissions(api)
    if missing:
        rule, resource, verbs = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PlatformError(
            f"the kubeconfig's user may not {'/'.join(verbs)} {resource}{more}, which is needed to {rule.purpose}; "
            "grant the role of docs/how-to/kubernetes.md, and see 'faultset doctor --platform kubernetes' for all"
        )


def _is_allowed(api: Api, rule: Rule, resource: str, verb: str) -> bool:
    name, _, sub = resource.partition("/")
    attributes = {"group": rule.group, "resource": name, "verb": verb}
    if sub:
        attributes["subresource"] = sub
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer.get("status", {}).get("allowed"))
