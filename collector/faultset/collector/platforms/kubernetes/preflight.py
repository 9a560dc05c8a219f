"""Check before a campaign which operations on pods a cluster allows."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Collection, Iterator

from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.ephemeral_containers import EphemeralImpairer
from faultset.collector.platforms.kubernetes.images import REPOSITORY, app_image, explain_missing_images
from faultset.collector.platforms.kubernetes.impairer import NodeCapabilities
from faultset.collector.platforms.kubernetes.manifests import find_missing_images
from faultset.collector.platforms.kubernetes.namespaces import EPISODE, PRIVILEGED, create_namespace, remove_namespaces
from faultset.collector.platforms.kubernetes.node_agents import NodeAgents, agent_manifests
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.core.errors import PlatformError

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
    unsupported = {need: f"{need} needs a proxy in front of every pod, which clusters lack" for need in _PROXY_NEEDS}
    unsupported["course"] = "impairments on a cluster cannot vary over time; use --schedule constant"
    if not _can_resize(api):
        unsupported["resize"] = (
            "the cluster cannot change the resources of a running pod (pods/resize, Kubernetes 1.33 and later)"
        )
    try:
        capabilities, privileged = probe_nodes(api, repository), True
    except Forbidden:
        capabilities, privileged = probe_pods(api, repository), False
    unsupported |= {
        need: f"this cluster does not support {need}: {reason}" for need, reason in capabilities.reasons.items()
    }
    return unsupported, privileged


def _can_resize(api: Api) -> bool:
    return any(resource["name"] == "pods/resize" for resource in api.get("/api/v1")["resources"])


def probe_nodes(api: Api, repository: str = REPOSITORY) -> NodeCapabilities:
    """Start the node agent briefly and return its capabilities; raise PlatformError if it does not start."""
    with _namespace(api) as name:
        agents = NodeAgents(api, name)
        objects = Objects(api, name)
        image = app_image(RUNTIME_TAG, repository)
        for manifest in agent_manifests(namespace=name, image=image, app_namespace=name):
            objects.apply(manifest)
        await_agents(agents, objects, timeout_s=_TIMEOUT_S)
        return agents.capabilities()


def probe_pods(api: Api, repository: str = REPOSITORY) -> NodeCapabilities:
    """Start a pod with an ephemeral container briefly and return its capabilities.

    Raises
    ------
    PlatformError
        The image is missing, or the cluster forbids ephemeral containers.
    """
    image = app_image(RUNTIME_TAG, repository)
    with _namespace(api) as name:
        container = {"name": "idle", "image": image, "command": ["sleep", str(round(2 * _TIMEOUT_S))]}
        spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
        objects = Objects(api, name)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "idle"}, "spec": spec}
        objects.create(pod)
        impairer = EphemeralImpairer(api, name, image)
        try:
            impairer.prepare(objects.list("Pod"))
        except PlatformError:
            if images := find_missing_images(objects.list("Pod")):
                raise PlatformError(explain_missing_images(images)) from None
            raise
        return impairer.capabilities()


def installed_servers(api: Api, drivers: Collection[str], repository: str = REPOSITORY) -> dict[str, str]:
    """Return the names and versions of original store servers in the image, by driver.

    Raises
    ------
    PlatformError
        The image or a server is missing, or the pod does not end.
    """
    image, deadline = app_image(RUNTIME_TAG, repository), time.monotonic() + _TIMEOUT_S
    with _namespace(api) as name:
        container = {"name": "versions", "image": image, "command": ["faultset-store", "versions", *drivers]}
        spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
        objects = Objects(api, name)
        objects.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "versions"}, "spec": spec})
        while (phase := objects.get("Pod", "versions").get("status", {}).get("phase")) not in ("Succeeded", "Failed"):
            if images := find_missing_images(objects.list("Pod")):
                raise PlatformError(explain_missing_images(images))
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"the pod that prints the server versions of image {image} did not end within {_TIMEOUT_S:g} s; "
                    "check its node"
                )
            time.sleep(0.4)
        output = api.get_text(f"{build_path('Pod', name, 'versions')}/log").decode("utf-8", "replace").strip()
    if phase == "Failed":
        reason = output.splitlines()[-1].removeprefix("Error: ") if output else "its pod printed nothing"
        raise PlatformError(
            f"image {image} does not contain the original store servers ({reason}); build it with "
            "`scripts/build-image.sh --stores` of the source tree, or omit --stores"
        )
    return dict(json.loads(output))


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
