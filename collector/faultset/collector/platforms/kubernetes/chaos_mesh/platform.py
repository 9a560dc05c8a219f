"""The platform on a cluster whose Chaos Mesh impairs, fails and kills pods."""

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
    experiment_of,
    inject,
    is_injected,
    killed_container,
    manifest,
    path_of_experiment,
    remove,
    remove_all,
)
from faultset.collector.platforms.kubernetes.client import Api, NotFound, path_of
from faultset.collector.platforms.kubernetes.impairer import Renewal, uid_of
from faultset.collector.platforms.objects import Object, is_active

LEASE_S = 420.0
"""After how long an experiment ends by itself, unless another has taken its place."""
RENEWED_AFTER_S = 360.0
FAILURE_S = 3600.0
"""How long a pod's failure lasts at most: a second one would take the image that does nothing for the pod's own."""


@dataclass(frozen=True, kw_only=True)
class _Active:
    pod: Object
    experiment: ChaosExperiment
    made: Object
    since_s: float
    """By the monotonic clock."""

    @property
    def is_old(self) -> bool:
        return self.experiment is not FAILED_POD and time.monotonic() - self.since_s > RENEWED_AFTER_S


class ChaosMeshImpairer:
    """Disturbs the pods of one namespace by experiments that lie in another.

    The specification of an experiment cannot change, its duration included, so that a lease is renewed by a successor
    that begins before its predecessor is removed.

    Parameters
    ----------
    namespace
        The control namespace, where experiments lie.
    app_namespace
        The application's, where the pods are.
    """

    def __init__(self, api: Api, namespace: str, app_namespace: str):
        self._api, self._namespace, self._app_namespace = api, namespace, app_namespace
        self._active: dict[str, _Active] = {}
        self._lock = threading.RLock()
        self._renewal = Renewal(self.renew)

    def start(self) -> None:
        """Begin to renew leases."""
        self._renewal.start()

    def close(self) -> None:
        """Renew no more leases and remove all experiments; may be called twice."""
        self._renewal.close()
        with self._lock:
            self._active.clear()
            remove_all(self._api, self._namespace)

    def impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, in place of any impairment before.

        Raises
        ------
        UsageError
            Chaos Mesh cannot do it.
        PlatformError
            It refuses, or does not do it in time.
        """
        self._act(pod, experiment_of(impairment, pod))

    def fail(self, pod: Object) -> None:
        """Let the pod's containers run an image that does nothing, until lifted."""
        self._act(pod, FAILED_POD)

    def kill(self, pod: Object, container: str) -> None:
        """Kill the main process of a container; raise PlatformError when that does not succeed."""
        self._do(pod, killed_container(container))

    def kill_pod(self, pod: Object) -> None:
        """Delete the pod without grace; raise PlatformError when that does not succeed."""
        self._do(pod, KILLED_POD)

    def lift(self, pod: str) -> None:
        """End what is done to a pod, by name or uid; nothing happens when there is nothing."""
        with self._lock:
            for uid, one in [*self._active.items()]:
                if pod in (uid, one.pod["metadata"]["name"]):
                    remove(self._api, [one.made])
                    del self._active[uid]

    def impaired_packets(self, pod: Object) -> int:
        """Return 0: Chaos Mesh counts no packets; see `evidence`."""
        return 0

    def evidence(self, pod: Object) -> str | None:
        """Return a sentence on what Chaos Mesh does to a pod at this moment; None when it does nothing."""
        with self._lock:
            one = self._active.get(uid_of(pod))
        if one is None:
            return None
        try:
            found = self._api.get(self._path(one.made))
        except NotFound:
            return None
        if not is_injected(found):
            return None
        return f"{self._what(one)} is injected into {pod['metadata']['name']}"

    def renew(self) -> None:
        """Put successors in the place of experiments whose lease ends soon; remove those of pods that are gone."""
        with self._lock:
            for uid, one in [*self._active.items()]:
                if not self._lives(one.pod):
                    remove(self._api, [one.made])
                    del self._active[uid]
                elif one.is_old:
                    self._act(one.pod, one.experiment)

    def _act(self, pod: Object, experiment: ChaosExperiment) -> None:
        with self._lock:
            since_s = time.monotonic()
            duration_s = FAILURE_S if experiment is FAILED_POD else LEASE_S
            made = inject(self._api, self._manifest(pod, experiment, duration_s))
            before = self._active.get(uid_of(pod))
            self._active[uid_of(pod)] = _Active(pod=pod, experiment=experiment, made=made, since_s=since_s)
            if before is not None:
                remove(self._api, [before.made])

    def _do(self, pod: Object, experiment: ChaosExperiment) -> None:
        """Do something that happens once."""
        with self._lock:
            remove(self._api, [inject(self._api, self._manifest(pod, experiment, None))])

    def _manifest(self, pod: Object, experiment: ChaosExperiment, duration_s: float | None) -> Object:
        return manifest(
            experiment,
            name=f"experiment-{secrets.token_hex(4)}",
            namespace=self._namespace,
            pod=pod["metadata"]["name"],
            pod_namespace=self._app_namespace,
            duration_s=duration_s,
        )

    def _lives(self, pod: Object) -> bool:
        try:
            found = self._api.get(path_of("Pod", self._app_namespace, pod["metadata"]["name"]))
        except NotFound:
            return False
        return uid_of(found) == uid_of(pod) and is_active(found)

    def _path(self, made: Object) -> str:
        return path_of_experiment(made["kind"], made["metadata"]["namespace"], made["metadata"]["name"])

    def _what(self, one: _Active) -> str:
        return " ".join(filter(None, [one.experiment.kind, one.experiment.spec.get("action")]))
