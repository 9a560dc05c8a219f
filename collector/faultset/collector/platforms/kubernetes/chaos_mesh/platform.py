"""Impair, fail and kill pods with Chaos Mesh."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass

from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    FAILED_POD,
    KILLED_POD,
    ChaosExperiment,
    build_experiment,
    build_manifest,
    inject,
    is_injected,
    kill_container,
    path_of_experiment,
    remove,
    remove_all,
)
from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.impairer import Renewal, get_uid
from faultset.collector.platforms.objects import is_active
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

LEASE_S = 420.0
"""Duration of an experiment; shortly before its end, a new experiment replaces it."""
RENEWAL_AGE_S = 360.0
FAILURE_S = 3600.0
"""Maximum duration of a pod failure. It is never renewed, because a second experiment would store the pause image as
the original image."""


@dataclass(frozen=True, kw_only=True)
class _Active:
    pod: Object
    experiment: ChaosExperiment
    injected: Object
    since_s: float
    """Monotonic time of the injection."""

    @property
    def is_old(self) -> bool:
        return self.experiment is not FAILED_POD and time.monotonic() - self.since_s > RENEWAL_AGE_S


class ChaosMeshImpairer:
    """Impairs the pods of a namespace with experiments in the control namespace.

    The duration of an experiment cannot be changed. To renew a lease, a new experiment starts before the old one is
    removed.

    Parameters
    ----------
    namespace
        The control namespace, which contains the experiments.
    app_namespace
        The application's namespace, which contains the pods.
    """

    def __init__(self, api: Api, namespace: str, app_namespace: str):
        self._api, self._namespace, self._app_namespace = api, namespace, app_namespace
        self._active: dict[str, _Active] = {}
        self._lock = threading.RLock()
        self._renewal = Renewal(self.renew)

    def start(self) -> None:
        """Start renewing leases."""
        self._renewal.start()

    def close(self) -> None:
        """Stop renewing leases and remove all experiments; may be called twice."""
        self._renewal.close()
        with self._lock:
            self._active.clear()
            remove_all(self._api, self._namespace)

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment.

        Raises
        ------
        UsageError
            Chaos Mesh does not support the impairment.
        PlatformError
            Chaos Mesh refuses it or does not inject it in time.
        """
        self._start_experiment(pod, build_experiment(impairment, pod))

    def fail(self, pod: Object) -> None:
        """Replace the pod's images with the pause image until `lift`."""
        self._start_experiment(pod, FAILED_POD)

    def kill(self, pod: Object, container: str) -> None:
        """Kill the main process of a container; raise PlatformError if that fails."""
        self._run_once(pod, kill_container(container))

    def kill_pod(self, pod: Object) -> None:
        """Delete the pod without a grace period; raise PlatformError if that fails."""
        self._run_once(pod, KILLED_POD)

    def lift(self, pod: str) -> None:
        """End the experiment on a pod, by name or uid, if there is one."""
        with self._lock:
            for uid, active in [*self._active.items()]:
                if pod in (uid, active.pod["metadata"]["name"]):
                    remove(self._api, [active.injected])
                    del self._active[uid]

    def impaired_packets(self, pod: Object) -> int:
        """Return 0, since Chaos Mesh does not count packets; see `evidence`."""
        return 0

    def evidence(self, pod: Object) -> str | None:
        """Return a sentence about the experiment that acts on a pod now; None if there is none."""
        with self._lock:
            active = self._active.get(get_uid(pod))
        if active is None:
            return None
        current = self._api.find(self._path(active.injected))
        if current is None or not is_injected(current):
            return None
        return f"{self._describe(active)} is injected into {pod['metadata']['name']}"

    def renew(self) -> None:
        """Replace experiments that end soon; remove experiments on deleted pods."""
        with self._lock:
            for uid, active in [*self._active.items()]:
                if not self._is_running(active.pod):
                    remove(self._api, [active.injected])
                    del self._active[uid]
                elif active.is_old:
                    self._start_experiment(active.pod, active.experiment)

    def _start_experiment(self, pod: Object, experiment: ChaosExperiment) -> None:
        with self._lock:
            since_s = time.monotonic()
            duration_s = FAILURE_S if experiment is FAILED_POD else LEASE_S
            injected = inject(self._api, self._build_manifest(pod, experiment, duration_s))
            before = self._active.get(get_uid(pod))
            self._active[get_uid(pod)] = _Active(pod=pod, experiment=experiment, injected=injected, since_s=since_s)
            if before is not None:
                remove(self._api, [before.injected])

    def _run_once(self, pod: Object, experiment: ChaosExperiment) -> None:
        """Run an experiment that acts once."""
        with self._lock:
            remove(self._api, [inject(self._api, self._build_manifest(pod, experiment, None))])

    def _build_manifest(self, pod: Object, experiment: ChaosExperiment, duration_s: float | None) -> Object:
        return build_manifest(
            experiment,
            name=f"experiment-{secrets.token_hex(4)}",
            namespace=self._namespace,
            pod=pod["metadata"]["name"],
            pod_namespace=self._app_namespace,
            duration_s=duration_s,
        )

    def _is_running(self, pod: Object) -> bool:
        current = self._api.find(build_path("Pod", self._app_namespace, pod["metadata"]["name"]))
        return current is not None and get_uid(current) == get_uid(pod) and is_active(current)

    def _path(self, injected: Object) -> str:
        return path_of_experiment(injected["kind"], injected["metadata"]["namespace"], injected["metadata"]["name"])

    def _describe(self, active: _Active) -> str:
        return " ".join(filter(None, [active.experiment.kind, active.experiment.spec.get("action")]))
