"""The platform on a cluster where Chaos Mesh impairs pods."""

from __future__ import annotations

from pathlib import Path

from faultset.collector.platforms.journal import Journal, undo_of_impairment
from faultset.collector.platforms.kubernetes.chaos_mesh.platform import ChaosMeshImpairer
from faultset.collector.platforms.kubernetes.namespaces import INJECTOR
from faultset.collector.platforms.kubernetes.platform import KubernetesPlatform
from faultset.collector.platforms.kubernetes.recovery import INJECTOR_NOTE
from faultset.collector.platforms.kubernetes.settings import CHAOS_MESH, ClusterSettings
from faultset.collector.spec.app import AppSpec


class ChaosMeshPlatform(KubernetesPlatform):
    """A `KubernetesPlatform` on which Chaos Mesh impairs, fails and kills pods.

    Node agents, if the cluster allows them, still measure the load of the nodes. Experiments are created in the control
    namespace, which is not recorded.
    """

    selects_requests = False

    def __init__(self, app: AppSpec, folder: Path, *, journal: Journal, episode: str, settings: ClusterSettings):
        super().__init__(app, folder, journal=journal, episode=episode, settings=settings)
        self._chaos_mesh = ChaosMeshImpairer(self.api, self.namespaces.control, self.namespaces.app)
        self._impairer, self._ephemeral = self._chaos_mesh, None
        self.control_labels = {INJECTOR: CHAOS_MESH}

    def deploy(self) -> None:
        """Create the namespaces, apply the manifests and start recording; return without waiting for readiness."""
        self.journal.note(INJECTOR_NOTE, name=CHAOS_MESH)
        super().deploy()

    def fail(self, pod: str) -> str:
        """Replace the pod's images with the pause image until the undo; return the name of that image."""
        target = self.get("Pod", pod)
        with self.journal.operation("fail", {"pod": pod}, undo_of_impairment(pod), [pod]):
            self._chaos_mesh.fail(target)
        image = self.get("Pod", pod)["spec"]["containers"][0]["image"]
        self.journal.note("failed", [image], image=image)
        return image

    def disturbance_evidence(self, pod: str) -> str | None:
        """Return a sentence about the experiment that acts on the pod now; None if there is none."""
        target = self.find("Pod", pod)
        return None if target is None else self._chaos_mesh.evidence(target)

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        if kind == "Pod" and grace_period_s == 0:
            self._chaos_mesh.kill_pod(self.get("Pod", name))
        else:
            super()._delete(kind, name, grace_period_s)

    def teardown(self) -> None:
        """Remove the experiments, then the namespaces with their content; may be called twice."""
        try:
            if self._is_deployed:
                self._chaos_mesh.close()
        finally:
            super().teardown()
