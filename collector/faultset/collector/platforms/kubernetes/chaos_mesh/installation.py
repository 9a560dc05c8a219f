"""Whether a cluster has a Chaos Mesh that works, and what it can do there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.collector.platforms.hosts import Requirement
from faultset.collector.platforms.impairments import (
    Abort,
    Bandwidth,
    Delay,
    Hold,
    Loss,
    Partition,
    Reset,
)
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    FAILED_POD,
    KILLED_POD,
    PLURALS,
    POD_RESOURCES,
    RESOURCES,
    ChaosExperiment,
    experiment_of,
    killed_container,
    manifest,
    path_of_experiment,
)
from faultset.collector.platforms.kubernetes.client import Api, NotFound
from faultset.collector.platforms.kubernetes.permissions import Rule, missing_permissions
from faultset.collector.platforms.objects import Object, is_ready
from faultset.core.errors import PlatformError

GROUP = "chaos-mesh.org"
ROLE_RULES: tuple[Rule, ...] = (
    Rule(
        group=GROUP,
        resources=tuple(PLURALS.values()),
        verbs=("get", "list", "create", "patch", "delete"),
        purpose="let Chaos Mesh disturb pods",
    ),
    Rule(group=GROUP, resources=POD_RESOURCES, verbs=("delete",), purpose="remove what Chaos Mesh left of a pod"),
)
NETEM = ("loss", "delay")
"""What Chaos Mesh makes with netem."""
_INSTALL = (
    "install it (its Helm chart, with chaosDaemon.runtime and chaosDaemon.socketPath of the nodes' container runtime), "
    "or leave --injector out"
)
_POD: Object = {"metadata": {"name": "none"}, "spec": {"containers": [{"ports": [{"containerPort": 80}]}]}}
_NAMESPACE = "default"
SAMPLES: Mapping[str, ChaosExperiment] = {
    "partition": experiment_of(Partition(), _POD),
    "bandwidth": experiment_of(Bandwidth(bytes_per_s=4000), _POD),
    "loss": experiment_of(Loss(probability=0.1), _POD),
    "delay": experiment_of(Delay(latency_s=0.1), _POD),
    "abort": experiment_of(Abort(share=1), _POD),
    "reset": experiment_of(Reset(share=1), _POD),
    "hold": experiment_of(Hold(share=1, latency_s=0.1), _POD),
    "kill": killed_container("none"),
    "pod-kill": KILLED_POD,
    "pod-failure": FAILED_POD,
}
"""An experiment for everything that Chaos Mesh is asked to do, by the capability or the fault that needs it."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What there is of Chaos Mesh.

    Attributes
    ----------
    kinds
        Those of its kinds that the API server knows.
    controllers, daemons
        How many of its pods are ready, and how many there are.
    """

    kinds: frozenset[str] = frozenset()
    controllers: tuple[int, int] = (0, 0)
    daemons: tuple[int, int] = (0, 0)

    @property
    def found(self) -> str:
        """What there is, in a few words."""
        if not self.kinds:
            return "the API server knows no resources of chaos-mesh.org"
        (ready, controllers), (running, daemons) = self.controllers, self.daemons
        return f"{len(self.kinds)} kinds, {ready} of {controllers} controllers and {running} of {daemons} daemons ready"

    @property
    def missing(self) -> str:
        """What is missing, as the end of a sentence; empty when all is there."""
        if not self.kinds:
            return self.found
        if absent := sorted(PLURALS.keys() - self.kinds):
            return f"the API server does not know {', '.join(absent)}"
        if not self.controllers[0] or self.daemons[0] < max(1, self.daemons[1]):
            return f"of its pods are ready {self.controllers[0]} of {self.controllers[1]} controllers and " + (
                f"{self.daemons[0]} of {self.daemons[1]} daemons"
            )
        return ""


def find_installation(api: Api) -> Installation:
    """Return what a cluster has of Chaos Mesh."""
    try:
        resources = api.get(RESOURCES)["resources"]
    except NotFound:
        return Installation()
    pods = api.get("/api/v1/pods", {"labelSelector": "app.kubernetes.io/name=chaos-mesh"})["items"]
    return Installation(
        kinds=frozenset(one["kind"] for one in resources if "/" not in one["name"]),
        controllers=_ready(pods, "controller-manager"),
        daemons=_ready(pods, "chaos-daemon"),
    )


def check_installation(api: Api) -> None:
    """Raise PlatformError when Chaos Mesh cannot be asked for anything."""
    if missing := find_installation(api).missing:
        raise PlatformError(f"the cluster has no Chaos Mesh that works: {missing}; {_INSTALL}")


def refused_samples(api: Api) -> dict[str, str]:
    """Return which of the samples the API server would not take, with what it says; makes nothing."""
    refused: dict[str, str] = {}
    for name, experiment in SAMPLES.items():
        lasting = None if experiment in (KILLED_POD, SAMPLES["kill"]) else 60.0
        wanted = manifest(
            experiment, name=name, namespace=_NAMESPACE, pod="none", pod_namespace=_NAMESPACE, duration_s=lasting
        )
        try:
            api.post(path_of_experiment(experiment.kind, _NAMESPACE), wanted, {"dryRun": "All"})
        except PlatformError as error:
            refused[name] = str(error)
    return refused


def unsupported_by_chaos_mesh(api: Api, own: Mapping[str, str]) -> dict[str, str]:
    """Return what Chaos Mesh cannot do of what faults can need, with the reason.

    Parameters
    ----------
    own
        What the node agent cannot do: netem is the kernel's, whoever uses it.
    """
    unsupported = {need: own[need] for need in ("course", "resize") if need in own}
    if "delay" in own:
        unsupported |= {need: f"Chaos Mesh makes {need} with netem, and {own['delay']}" for need in NETEM}
    refused = {name: f"Chaos Mesh refuses {name}: {said}" for name, said in refused_samples(api).items()}
    return {**unsupported, **refused}


def chaos_mesh_rows(api: Api, *, needed: bool) -> list[Requirement]:
    """Return what there is of Chaos Mesh, as rows; none where there is nothing of it and it is not needed."""
    try:
        installation = find_installation(api)
        if not installation.kinds and not needed:
            return []
        found = installation.missing or installation.found
        rows = [Requirement("Chaos Mesh", not installation.missing, found, _INSTALL, needed)]
        return rows if installation.missing else [*rows, _permissions(api, needed), _experiments(api)]
    except PlatformError as error:
        return [Requirement("Chaos Mesh", False, str(error), "let the user list pods", needed)] if needed else []


def _permissions(api: Api, needed: bool) -> Requirement:
    refused = [f"{'/'.join(verbs)} {resource}" for _, resource, verbs in missing_permissions(api, ROLE_RULES)]
    found = f"may not {', '.join(refused)}" if refused else "all verbs"
    remedy = "grant the role of docs/how-to/chaos-mesh.md to the kubeconfig's user"
    return Requirement("may use Chaos Mesh", not refused, found, remedy, needed)


def _experiments(api: Api) -> Requirement:
    refused = refused_samples(api)
    taken = ", ".join(name for name in SAMPLES if name not in refused)
    found = f"would take {taken or 'nothing'}" + "".join(f"; not {name}: {said}" for name, said in refused.items())
    remedy = "install the kinds of the same release as the controller; faults that need the rest are left out"
    return Requirement("experiments of Chaos Mesh", not refused, found, remedy, needed=False)


def _ready(pods: Sequence[Object], component: str) -> tuple[int, int]:
    label = "app.kubernetes.io/component"
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(label) == component]
    return sum(is_ready(pod) for pod in mine), len(mine)
