"""The permissions that episodes need on a cluster, and the operations on pods that the cluster allows."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.impairer import EphemeralImpairer, NodeAgents, build_agent_manifest
from faultset.collector.platforms.kubernetes.manifests import find_missing_images
from faultset.collector.platforms.kubernetes.objects import (
    EPISODE,
    PRIVILEGED,
    Objects,
    create_namespace,
    remove_namespaces,
)
from faultset.collector.platforms.kubernetes.settings import REPOSITORY, app_image, explain_missing_images
from faultset.collector.spec.features import CustomResource
from faultset.collector.spec.manifests import operator_rules
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

_THREADS = 8


class Rule(NamedTuple):
    """Verbs on resources of one API group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str
    """Completes the phrase "needed to"."""


_ALL_VERBS = ("get", "list", "watch", "create", "patch", "delete")


ROLE_RULES: tuple[Rule, ...] = (
    Rule("", ("namespaces",), ("get", "list", "create", "patch", "delete"), "create namespaces for every episode"),
    Rule("", ("services", "configmaps", "persistentvolumeclaims"), _ALL_VERBS, "deploy and change applications"),
    Rule("", ("pods",), (*_ALL_VERBS, "deletecollection"), "run, watch and delete pods"),
    Rule("", ("secrets",), ("get", "create", "patch"), "store the passwords of stores"),
    Rule("", ("endpoints", "events"), ("get", "list", "watch"), "record events"),
    Rule("", ("pods/log",), ("get",), "record logs"),
    Rule("", ("pods/exec",), ("get", "create"), "run commands in pods"),
    Rule("", ("pods/proxy", "services/proxy"), ("get", "create"), "read telemetry"),
    Rule("", ("pods/resize",), ("patch",), "change limits of running pods"),
    Rule("", ("pods/ephemeralcontainers",), ("patch",), "impair pods without a node agent"),
    Rule(
        "apps", ("deployments", "replicasets", "statefulsets", "daemonsets"), _ALL_VERBS, "deploy and change workloads"
    ),
    Rule("", ("persistentvolumes",), _ALL_VERBS, "create volumes for stores"),
    Rule("", ("nodes",), ("get", "list"), "schedule pods and check capacity"),
    Rule("authorization.k8s.io", ("selfsubjectaccessreviews",), ("create",), "check permissions"),
)


OPERATOR_RULES: tuple[Rule, ...] = (
    Rule(
        "apiextensions.k8s.io",
        ("customresourcedefinitions",),
        ("get", "create", "patch", "delete"),
        "define custom resources",
    ),
    Rule("storage.k8s.io", ("storageclasses",), ("list",), "check whether the cluster provisions volumes"),
    Rule("", ("serviceaccounts",), ("create", "patch"), "create service accounts for operators"),
    Rule(
        "rbac.authorization.k8s.io", ("roles", "rolebindings"), ("create", "patch"), "grant operators their permissions"
    ),
    Rule("", ("events",), ("create", "patch"), "let operators record events"),
    Rule("", ("services", "persistentvolumeclaims", "pods"), ("update",), "let operators change their objects"),
    Rule("apps", ("statefulsets",), ("update",), "let operators update workloads"),
)
"""Additional rules for applications with an operator; users can only grant permissions that they have."""


def operator_permissions(resource: CustomResource) -> tuple[Rule, ...]:
    """Return the additional rules to deploy an application with an operator."""
    (rule,) = [rule for rule in operator_rules(resource) if rule["apiGroups"] == [resource.group]]
    purpose = f"use objects of kind {resource.kind}"
    return (*OPERATOR_RULES, Rule(resource.group, tuple(rule["resources"]), tuple(rule["verbs"]), purpose))


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
        total = f" (missing permissions in total: {len(missing)})" if len(missing) > 1 else ""
        raise PlatformError(
            f"the kubeconfig's user may not {'/'.join(verbs)} {resource}, which is needed to {rule.purpose}{total}; "
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


RUNTIME_TAG = "1.0.0"
_TIMEOUT_S = 60.0


_PROXY_NEEDS = ("bandwidth", "abort", "reset", "hold")


class Forbidden(PlatformError):
    """The cluster forbids the node agent."""


def unsupported_needs(api: Api, repository: str = REPOSITORY) -> tuple[dict[str, str], bool]:
    """Return the capabilities that this cluster lacks, with the reasons, and whether the node agent may run.

    Starts the agent briefly in a separate namespace. If the cluster forbids it, tests an ephemeral container instead.

    Parameters
    ----------
    repository
        Repository of the application's image, without a tag.

    Raises
    ------
    PlatformError
        The image is missing, the agent is allowed but does not start, or ephemeral containers are forbidden as well.
    """
    unsupported = {
        need: f"{need} requires a proxy in front of every pod, and clusters have none" for need in _PROXY_NEEDS
    }
    unsupported["course"] = "impairments on a cluster cannot vary over time; use --schedule constant"
    if not any(resource["name"] == "pods/resize" for resource in api.get("/api/v1")["resources"]):
        unsupported["resize"] = (
            "the cluster cannot change the resources of a running pod (pods/resize, Kubernetes 1.33 and later)"
        )
    try:
        missing, privileged = probe_nodes(api, repository), True
    except Forbidden:
        missing, privileged = probe_pods(api, repository), False
    unsupported |= {need: f"this cluster does not support {need}: {reason}" for need, reason in missing.items()}
    return unsupported, privileged


def probe_nodes(api: Api, repository: str = REPOSITORY) -> dict[str, str]:
    """Start the node agent briefly and return the capabilities that it lacks, with the reasons."""
    with _namespace(api) as name:
        agents = NodeAgents(api, name)
        objects = Objects(api, name)
        image = app_image(RUNTIME_TAG, repository)
        objects.apply(build_agent_manifest(namespace=name, image=image, app_namespace=name))
        await_agents(agents, objects, timeout_s=_TIMEOUT_S)
        return agents.missing_capabilities()


def probe_pods(api: Api, repository: str = REPOSITORY) -> dict[str, str]:
    """Start a pod with an ephemeral container briefly and return the capabilities that it lacks, with the reasons.

    Raises
    ------
    PlatformError
        The image is missing, or the cluster forbids ephemeral containers.
    """
    image = app_image(RUNTIME_TAG, repository)
    with _namespace(api) as name:
        objects = Objects(api, name)
        objects.create(_build_pod("idle", image, ["sleep", str(round(2 * _TIMEOUT_S))]))
        impairer = EphemeralImpairer(api, name, image)
        try:
            impairer.prepare(objects.list("Pod"))
        except PlatformError:
            if images := find_missing_images(objects.list("Pod")):
                raise PlatformError(explain_missing_images(images)) from None
            raise
        return impairer.missing_capabilities()


def installed_servers(api: Api, drivers: Collection[str], repository: str = REPOSITORY) -> dict[str, str]:
    """Return the names and versions of original store servers in the image, by driver.

    Raises
    ------
    PlatformError
        The image or a server is missing, or the pod does not finish in time.
    """
    image, deadline = app_image(RUNTIME_TAG, repository), time.monotonic() + _TIMEOUT_S
    with _namespace(api) as name:
        objects = Objects(api, name)
        objects.create(_build_pod("versions", image, ["faultset-store", "versions", *drivers]))
        while (phase := objects.get("Pod", "versions").get("status", {}).get("phase")) not in ("Succeeded", "Failed"):
            if images := find_missing_images(objects.list("Pod")):
                raise PlatformError(explain_missing_images(images))
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"the pod that prints the server versions of image {image} did not finish within {_TIMEOUT_S:g} s; "
                    "check its node"
                )
            time.sleep(0.4)
        output = api.call("GET", f"{build_path('Pod', name, 'versions')}/log").decode("utf-8", "replace").strip()
    if phase == "Failed":
        reason = output.splitlines()[-1].removeprefix("Error: ") if output else "its pod printed nothing"
        raise PlatformError(
            f"image {image} does not contain the original store servers ({reason}); build it with "
            "`scripts/build-image.sh --stores` of the source tree, or omit --stores"
        )
    return dict(json.loads(output))


def _build_pod(name: str, image: str, command: list[str]) -> Object:
    container = {"name": name, "image": image, "command": command}
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def _namespace(api: Api) -> Iterator[str]:
    """Create a temporary namespace; delete it afterwards without waiting for its removal."""
    name = f"check-{secrets.token_hex(4)}"
    create_namespace(api, name, {EPISODE: "none", **PRIVILEGED})
    try:
        yield name
    finally:
        with contextlib.suppress(PlatformError):
            remove_namespaces(api, (name,), timeout_s=0.0)


def await_agents(agents: NodeAgents, objects: Objects, *, timeout_s: float) -> None:
    """Wait for an agent on every node.

    Raises
    ------
    PlatformError
        The image is missing, the cluster forbids the agent, or it does not start in time.
    """
    deadline = time.monotonic() + timeout_s
    while missing := agents.describe_missing():
        images = find_missing_images(objects.list("Pod"))
        if images:
            raise PlatformError(explain_missing_images(images))
        forbidden = [
            event.get("message", "")
            for event in objects.api.get(build_path("Event", objects.namespace))["items"]
            if event.get("reason") == "FailedCreate" and "forbidden" in event.get("message", "")
        ]
        if forbidden:
            raise Forbidden(f"the cluster forbids the node agent: {forbidden[0][:300]}")
        if time.monotonic() > deadline:
            raise PlatformError(f"the node agent did not start within {timeout_s:g} s: {missing}")
        time.sleep(0.4)
