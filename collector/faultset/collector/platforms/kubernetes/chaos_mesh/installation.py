"""Check whether a cluster has a working Chaos Mesh and which experiments it accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.collector.platforms.hosts import Requirement
from faultset.collector.platforms.impairments import Abort, Bandwidth, Delay, Hold, Loss, Partition, Reset
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    FAILED_POD,
    KILLED_POD,
    PLURALS,
    POD_RESOURCES,
    RESOURCES,
    ChaosExperiment,
    build_experiment,
    build_manifest,
    kill_container,
    path_of_experiment,
)
from faultset.collector.platforms.kubernetes.client import Api, NotFound
from faultset.collector.platforms.kubernetes.preflight import Rule, missing_permissions
from faultset.collector.platforms.objects import is_ready
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

GROUP = "chaos-mesh.org"
ROLE_RULES: tuple[Rule, ...] = (
    Rule(GROUP, tuple(PLURALS.values()), ("get", "list", "create", "patch", "delete"), "impair pods with Chaos Mesh"),
    Rule(GROUP, POD_RESOURCES, ("delete",), "remove leftovers of Chaos Mesh"),
)
NETEM = ("loss", "delay")
"""Impairments for which Chaos Mesh uses netem."""
_INSTALL_HINT = (
    "install its Helm chart, with chaosDaemon.runtime and chaosDaemon.socketPath of the nodes' container runtime, or "
    "omit --injector"
)
_POD: Object = {"metadata": {"name": "none"}, "spec": {"containers": [{"ports": [{"containerPort": 80}]}]}}
_NAMESPACE = "default"
SAMPLES: Mapping[str, ChaosExperiment] = {
    "partition": build_experiment(Partition(), _POD),
    "bandwidth": build_experiment(Bandwidth(bytes_per_s=4000), _POD),
    "loss": build_experiment(Loss(probability=0.1), _POD),
    "delay": build_experiment(Delay(latency_s=0.1), _POD),
    "abort": build_experiment(Abort(share=1), _POD),
    "reset": build_experiment(Reset(share=1), _POD),
    "hold": build_experiment(Hold(share=1, latency_s=0.1), _POD),
    "kill": kill_container("none"),
    "pod-kill": KILLED_POD,
    "pod-failure": FAILED_POD,
}
"""Sample experiments, by the capability or fault that needs them."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The state of Chaos Mesh on a cluster.

    Attributes
    ----------
    kinds
        Chaos Mesh kinds that the API server serves.
    controllers, daemons
        Number of ready pods, number of all pods.
    """

    kinds: frozenset[str] = frozenset()
    controllers: tuple[int, int] = (0, 0)
    daemons: tuple[int, int] = (0, 0)

    @property
    def summary(self) -> str:
        """The served kinds and the ready pods."""
        if not self.kinds:
            return "the API server does not serve chaos-mesh.org"
        (ready, controllers), (running, daemons) = self.controllers, self.daemons
        return f"{len(self.kinds)} kinds, {ready} of {controllers} controllers and {running} of {daemons} daemons ready"

    @property
    def problem(self) -> str:
        """A description of missing kinds or pods that are not ready; empty if Chaos Mesh works."""
        if not self.kinds:
            return self.summary
        if absent := sorted(PLURALS.keys() - self.kinds):
            return f"the API server does not serve {', '.join(absent)}"
        if not self.controllers[0] or self.daemons[0] < max(1, self.daemons[1]):
            return (
                f"only {self.controllers[0]} of {self.controllers[1]} controllers and {self.daemons[0]} of "
                f"{self.daemons[1]} daemons are ready"
            )
        return ""


def find_installation(api: Api) -> Installation:
    try:
        resources = api.get(RESOURCES)["resources"]
    except NotFound:
        return Installation()
    pods = api.get("/api/v1/pods", {"labelSelector": "app.kubernetes.io/name=chaos-mesh"})["items"]
    return Installation(
        kinds=frozenset(resource["kind"] for resource in resources if "/" not in resource["name"]),
        controllers=_count_ready(pods, "controller-manager"),
        daemons=_count_ready(pods, "chaos-daemon"),
    )


def check_installation(api: Api) -> None:
    """Raise PlatformError if Chaos Mesh does not work on the cluster."""
    if problem := find_installation(api).problem:
        raise PlatformError(f"Chaos Mesh does not work on the cluster: {problem}; {_INSTALL_HINT}")


def find_refused_samples(api: Api) -> dict[str, str]:
    """Return the API server's error messages for the samples that it rejects in a dry run, by sample."""
    refused: dict[str, str] = {}
    for name, experiment in SAMPLES.items():
        duration_s = None if experiment in (KILLED_POD, SAMPLES["kill"]) else 60.0
        body = build_manifest(
            experiment, name=name, namespace=_NAMESPACE, pod="none", pod_namespace=_NAMESPACE, duration_s=duration_s
        )
        try:
            api.post(path_of_experiment(experiment.kind, _NAMESPACE), body, {"dryRun": "All"})
        except PlatformError as error:
            refused[name] = str(error)
    return refused


def unsupported_by_chaos_mesh(api: Api, unsupported_by_agent: Mapping[str, str]) -> dict[str, str]:
    """Return the capabilities that Chaos Mesh lacks, with the reasons.

    Parameters
    ----------
    unsupported_by_agent
        Capabilities that the node agent lacks, with the reasons. If the kernel lacks netem, Chaos Mesh cannot delay
        packets either.
    """
    reasons = unsupported_by_agent
    unsupported = {need: reasons[need] for need in ("course", "resize") if need in reasons}
    if "delay" in reasons:
        unsupported |= {need: f"Chaos Mesh uses netem for {need}, and {reasons['delay']}" for need in NETEM}
    refused = {name: f"Chaos Mesh refuses {name}: {message}" for name, message in find_refused_samples(api).items()}
    return {**unsupported, **refused}


def check_chaos_mesh(api: Api, *, needed: bool) -> list[Requirement]:
    """Check Chaos Mesh; return no rows if it is neither installed nor needed."""
    try:
        installation = find_installation(api)
        if not installation.kinds and not needed:
            return []
        state = installation.problem or installation.summary
        rows = [Requirement("Chaos Mesh", not installation.problem, state, _INSTALL_HINT, needed)]
        return rows if installation.problem else [*rows, _check_permissions(api, needed), _check_experiments(api)]
    except PlatformError as error:
        return [Requirement("Chaos Mesh", False, str(error), "allow the user to list pods", needed)] if needed else []


def _check_permissions(api: Api, needed: bool) -> Requirement:
    refused = [f"{'/'.join(verbs)} {resource}" for _, resource, verbs in missing_permissions(api, ROLE_RULES)]
    state = f"may not {', '.join(refused)}" if refused else "all verbs"
    remedy = "grant the role of docs/how-to/chaos-mesh.md to the kubeconfig's user"
    return Requirement("may use Chaos Mesh", not refused, state, remedy, needed)


def _check_experiments(api: Api) -> Requirement:
    refused = find_refused_samples(api)
    accepted = ", ".join(name for name in SAMPLES if name not in refused)
    refusals = "".join(f"; refuses {name}: {reason}" for name, reason in refused.items())
    state = f"accepts {accepted or 'nothing'}{refusals}"
    remedy = "install the CRDs of the controller's release; faults that need a refused experiment are skipped"
    return Requirement("experiments of Chaos Mesh", not refused, state, remedy, needed=False)


def _count_ready(pods: Sequence[Object], component: str) -> tuple[int, int]:
    label = "app.kubernetes.io/component"
    members = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(label) == component]
    return sum(is_ready(pod) for pod in members), len(members)
