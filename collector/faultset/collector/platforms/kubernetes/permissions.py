"""List the permissions that episodes need on a cluster, and check whether the kubeconfig's user has them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.spec.features import CustomResource
from faultset.collector.spec.manifests import operator_rules
from faultset.core.errors import PlatformError

_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str
    """Completes the phrase "needed to"."""


_ALL_VERBS = ("get", "list", "watch", "create", "patch", "delete")


ROLE_RULES: tuple[Rule, ...] = (
    Rule(
        group="",
        resources=("namespaces",),
        verbs=("get", "list", "create", "patch", "delete"),
        purpose="create namespaces for every episode",
    ),
    Rule(
        group="",
        resources=("services", "configmaps", "persistentvolumeclaims"),
        verbs=_ALL_VERBS,
        purpose="deploy and change applications",
    ),
    Rule(group="", resources=("pods",), verbs=(*_ALL_VERBS, "deletecollection"), purpose="run, watch and delete pods"),
    Rule(group="", resources=("secrets",), verbs=("get", "create", "patch"), purpose="store the passwords of stores"),
    Rule(group="", resources=("endpoints", "events"), verbs=("get", "list", "watch"), purpose="record events"),
    Rule(group="", resources=("pods/log",), verbs=("get",), purpose="record logs"),
    Rule(group="", resources=("pods/exec",), verbs=("get", "create"), purpose="run commands in pods"),
    Rule(group="", resources=("pods/proxy", "services/proxy"), verbs=("get", "create"), purpose="read telemetry"),
    Rule(group="", resources=("pods/resize",), verbs=("patch",), purpose="change limits of running pods"),
    Rule(
        group="", resources=("pods/ephemeralcontainers",), verbs=("patch",), purpose="impair pods without a node agent"
    ),
    Rule(
        group="apps",
        resources=("deployments", "replicasets", "statefulsets", "daemonsets"),
        verbs=_ALL_VERBS,
        purpose="deploy and change workloads",
    ),
    Rule(group="", resources=("persistentvolumes",), verbs=_ALL_VERBS, purpose="create volumes for stores"),
    Rule(group="", resources=("nodes",), verbs=("get", "list"), purpose="schedule pods and check capacity"),
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
        purpose="check whether the cluster provisions volumes",
    ),
    Rule(
        group="",
        resources=("serviceaccounts",),
        verbs=("create", "patch"),
        purpose="create service accounts for operators",
    ),
    Rule(
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
        verbs=("create", "patch"),
        purpose="grant operators their permissions",
    ),
    Rule(group="", resources=("events",), verbs=("create", "patch"), purpose="let operators record events"),
    Rule(
        group="",
        resources=("services", "persistentvolumeclaims", "pods"),
        verbs=("update",),
        purpose="let operators change their objects",
    ),
    Rule(group="apps", resources=("statefulsets",), verbs=("update",), purpose="let operators update workloads"),
)
"""Additional rules for applications with an operator; users can only grant permissions that they have."""


def operator_permissions(resource: CustomResource) -> tuple[Rule, ...]:
    """Return the additional rules to deploy an application with an operator."""
    (rule,) = [rule for rule in operator_rules(resource) if rule["apiGroups"] == [resource.group]]
    purpose = f"use objects of kind {resource.kind}"
    custom = Rule(group=resource.group, resources=tuple(rule["resources"]), verbs=tuple(rule["verbs"]), purpose=purpose)
    return (*OPERATOR_RULES, custom)


def missing_permissions(api: Api, rules: Sequence[Rule] = ROLE_RULES) -> list[tuple[Rule, str, list[str]]]:
    """Return the missing permissions: rule, resource and refused verbs.

    The namespaces of episodes do not exist yet, so permissions must hold in all namespaces.
    """
    questions = [(rule, resource, verb) for rule in rules for resource in rule.resources for verb in rule.verbs]
    with ThreadPoolExecutor(_THREADS) as pool:
        allowed = list(pool.map(lambda question: _is_allowed(api, *question), questions))
    missing: dict[tuple[Rule, str], list[str]] = {}
    for (rule, resource, verb), ok in zip(questions, allowed, strict=True):
        if not ok:
            missing.setdefault((rule, resource), []).append(verb)
    return [(rule, resource, verbs) for (rule, resource), verbs in missing.items()]


def check_permissions(api: Api) -> None:
    """Raise PlatformError if the user lacks a permission that episodes need."""
    missing = missing_permissions(api)
    if missing:
        rule, resource, verbs = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise PlatformError(
            f"the kubeconfig's user may not {'/'.join(verbs)} {resource}{more}, which is needed to {rule.purpose}; "
            "grant the role in docs/how-to/kubernetes.md, and run 'faultset doctor --platform kubernetes' for the full "
            "list"
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
    response = api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(response.get("status", {}).get("allowed"))
