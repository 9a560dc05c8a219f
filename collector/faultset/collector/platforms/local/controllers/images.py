"""Images: those that the node has, and the back-off of those that nobody has."""

from __future__ import annotations

from faultset.collector.platforms.local.controllers.back_off import BackOff
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.local.controllers.pod_specs import is_known_image
from faultset.collector.platforms.local.controllers.pod_states import ContainerState, PodState

RESYNC_S = 10.0
"""Time between two looks of the kubelet at a pod that waits."""


class Images:
    """Finds images for containers, and says in their status and in events when it cannot."""

    def __init__(self, context: Context):
        self._context = context
        self._pulls = BackOff(context.factor)
        self._failed_ns: dict[str, int] = {}

    def has(self, state: PodState, container: ContainerState, image: str) -> bool:
        """Say whether the image is there; if not, the pod waits and tries again."""
        container.image = image
        if is_known_image(image):
            message = f'Container image "{image}" already present on machine'
            self._context.events.normal(state.pod, "Pulled", message)
            return True
        container.terminated_shown = False
        key, now_ns = f"{state.uid}/{image}", self._context.now_ns
        failed_ns = self._failed_ns.get(key)
        if failed_ns is None or now_ns >= self._pulls.until_ns(key, failed_ns):
            self._pulls.next(key, now_ns if failed_ns is None else failed_ns, now_ns)
            self._failed_ns[key] = now_ns
            self._fail(state, container, image)
        elif now_ns >= container.reported_ns + self._context.scaled_ns(1):
            self._back_off(state, container, image)
        soon_ns = container.reported_ns + self._context.scaled_ns(1)
        if now_ns >= soon_ns:
            soon_ns = container.reported_ns + self._context.scaled_ns(RESYNC_S)
        self._context.requeue(min(self._pulls.until_ns(key, self._failed_ns[key]), soon_ns))
        return False

    def _fail(self, state: PodState, container: ContainerState, image: str) -> None:
        events, pod = self._context.events, state.pod
        reason = f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": not found'
        events.normal(pod, "Pulling", f'Pulling image "{image}"')
        events.warning(pod, "Failed", f'Failed to pull image "{image}": {reason}')
        events.warning(pod, "Failed", "Error: ErrImagePull")
        container.waiting = {"reason": "ErrImagePull", "message": reason}
        container.reported_ns = self._context.now_ns

    def _back_off(self, state: PodState, container: ContainerState, image: str) -> None:
        message = f'Back-off pulling image "{image}"'
        container.waiting = {"reason": "ImagePullBackOff", "message": message}
        if self._context.now_ns >= container.reported_ns + self._context.scaled_ns(RESYNC_S):
            container.reported_ns = self._context.now_ns - self._context.scaled_ns(1)
            self._context.events.normal(state.pod, "BackOff", message)
            self._context.events.warning(state.pod, "Failed", "Error: ImagePullBackOff")
