"""What a cluster lets us do to pods, found out before a campaign begins."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Collection, Iterator

from faultset.collector.platforms.kubernetes.client import Api, path_of
from faultset.collector.platforms.kubernetes.ephemeral_containers import EphemeralImpairer
from faultset.collector.platforms.kubernetes.images import REPOSITORY, app_image, missing_images_sentence
from faultset.collector.platforms.kubernetes.impairer import NodeCapabilities
from faultset.collector.platforms.kubernetes.manifests import images_missing
from faultset.collector.platforms.kubernetes.namespaces import EPISODE, PRIVILEGED, make_namespace, remove_namespaces
from faultset.collector.platforms.kubernetes.node_agents import NodeAgents, agent_manifests
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.core.errors import PlatformError

RUNTIME_TAG = "1.0.0"
_TIMEOUT_S = 60.0


_OF_PROXIES = ("bandwidth", "abort", "reset", "hold")


class Forbidden(PlatformError):
    """The cluster does not let the node agent run."""


def unsupported_needs(api: Api, repository: str = REPOSITORY) -> tuple[dict[str, str], bool]:
    """Return what this cluster cannot do of what faults can need, with the reason; and whether the node agent may run.

    Runs the agent in a namespace of its own for a moment. Where pods like it are forbidden, what a container inside
    of a pod can do counts.

    Parameters
    ----------
    repository
        Where the nodes find our image, without its tag.

    Raises
    ------
    PlatformError
        The agent's image is missing, or it does not start for another reason.
    """
    unsupported = {need: f"{need} needs a proxy in front of every pod, which a cluster has not" for need in _OF_PROXIES}
    unsupported["course"] = "impairments of a cluster's pods do not change over time; use --schedule constant there"
    if not _can_resize(api):
        unsupported["resize"] = (
            "the cluster cannot change the resources of a running pod (pods/resize, Kubernetes 1.33 and later)"
        )
    try:
        found, privileged = probe_nodes(api, repository), True
    except Forbidden:
        found, privileged = probe_pods(api, repository), False
    unsupported |= {need: f"this cluster cannot do {need}: {reason}" for need, reason in found.reasons.items()}
    return unsupported, privileged


def _can_resize(api: Api) -> bool:
    return any(resource["name"] == "pods/resize" for resource in api.get("/api/v1")["resources"])


def probe_nodes(api: Api, repository: str = REPOSITORY) -> NodeCapabilities:
    """Run the node agent for a moment and return what it can do; raise PlatformError when it does not start."""
    with _namespace(api) as name:
        agents = NodeAgents(api, name)
        objects = Objects(api, name)
        image = app_image(RUNTIME_TAG, repository)
        for wanted in agent_manifests(namespace=name, image=image, app_namespace=name):
            objects.apply(wanted)
        await_agents(agents, objects, timeout_s=_TIMEOUT_S)
        return agents.capabilities()


def probe_pods(api: Api, repository: str = REPOSITORY) -> NodeCapabilities:
    """Return what a container inside of a pod can do, as one in a pod of its own finds out.

    Raises
    ------
    PlatformError
        The image is missing, or such containers are forbidden as well.
    """
    image = app_image(RUNTIME_TAG, repository)
    with _namespace(api) as name:
        container = {"name": "idle", "image": image, "command": ["sleep", str(round(2 * _TIMEOUT_S))]}
        spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
        objects = Objects(api, name)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "idle"}, "spec": spec}
        objects.create(pod)
        inside = EphemeralImpairer(api, name, image)
        try:
            inside.prepare(objects.list("Pod"))
        except PlatformError:
            if images := images_missing(objects.list("Pod")):
                raise PlatformError(missing_images_sentence(images)) from None
            raise
        return inside.capabilities()


def installed_servers(api: Api, drivers: Collection[str], repository: str = REPOSITORY) -> dict[str, str]:
    """Return name and version of the original servers of stores that our image has, by their drivers.

    Raises
    ------
    PlatformError
        The image is missing, lacks one of the servers, or its pod does not end.
    """
    image, deadline = app_image(RUNTIME_TAG, repository), time.monotonic() + _TIMEOUT_S
    with _namespace(api) as name:
        container = {"name": "versions", "image": image, "command": ["faultset-store", "versions", *drivers]}
        spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
        objects = Objects(api, name)
        objects.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "versions"}, "spec": spec})
        while (phase := objects.get("Pod", "versions").get("status", {}).get("phase")) not in ("Succeeded", "Failed"):
            if images := images_missing(objects.list("Pod")):
                raise PlatformError(missing_images_sentence(images))
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"a pod of image {image} that tells the versions of its servers did not end within "
                    f"{_TIMEOUT_S:g} s; look at its node"
                )
            time.sleep(0.4)
        said = api.get_text(f"{path_of('Pod', name, 'versions')}/log").decode("utf-8", "replace").strip()
    if phase == "Failed":
        reason = said.splitlines()[-1].removeprefix("Error: ") if said else "its pod said nothing"
        raise PlatformError(
            f"image {image} does not have the original servers of stores ({reason}); build it with "
            "`scripts/build-image.sh --stores` of the source tree, or leave --stores out"
        )
    return dict(json.loads(said))


@contextlib.contextmanager
def _namespace(api: Api) -> Iterator[str]:
    """Make a namespace for a look at the cluster; it goes without being waited for."""
    name = f"check-{secrets.token_hex(4)}"
    make_namespace(api, name, {EPISODE: "none", **PRIVILEGED})
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
        Its image is missing, pods like it are forbidden, or it took too long.
    """
    deadline = time.monotonic() + timeout_s
    while missing := agents.ready():
        images = images_missing(objects.list("Pod"))
        if images:
            raise PlatformError(missing_images_sentence(images))
        forbidden = [
            event.get("message", "")
            for event in objects.api.get(path_of("Event", objects.namespace))["items"]
            if event.get("reason") == "FailedCreate" and "forbidden" in event.get("message", "")
        ]
        if forbidden:
            raise Forbidden(f"the node agent may not run here: {forbidden[0][:300]}")
        if time.monotonic() > deadline:
            raise PlatformError(f"the node agent did not start within {timeout_s:g} s: {missing}")
        time.sleep(0.4)
