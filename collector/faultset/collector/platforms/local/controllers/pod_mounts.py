"""What pods mount: found when a container starts, brought up to date while it runs."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.local.controllers.commands import Command, RefreshMounts
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.local.controllers.pod_specs import MissingReference, mounts
from faultset.collector.platforms.local.controllers.pod_states import PodState, init_specs

REFRESH_S = 60.0
LONGEST_MOUNT_RETRY_S = 122.0


class PodMounts:
    """The mounts of all pods of a node.

    Parameters
    ----------
    context
        Store, events and clock.
    """

    def __init__(self, context: Context):
        self._context = context

    def mount(self, state: PodState, spec: dict[str, Any]) -> bool:
        """Find what a container mounts; say whether it may start, and try again later if not."""
        context, name = self._context, spec["name"]
        if name not in state.mounts and context.now_ns < state.mount_retry_ns:
            context.requeue(state.mount_retry_ns)
            return False
        try:
            if not state.mounts:  # all volumes of a pod are set up before the first of its containers
                for other in (*init_specs(state.pod), *state.pod["spec"]["containers"]):
                    mounts(context.store, state.pod, other)
            state.mounts[name] = mounts(context.store, state.pod, spec)
        except MissingReference as missing:
            if name in state.mounts:
                return True
            state.mount_wait_s = min(LONGEST_MOUNT_RETRY_S, 2 * state.mount_wait_s)
            state.mount_retry_ns = context.now_ns + context.scaled_ns(state.mount_wait_s)
            context.requeue(state.mount_retry_ns)
            message = f"MountVolume.SetUp failed for {missing}"
            context.events.warning(state.pod, "FailedMount", message)
            return False
        return True

    def refresh(self, state: PodState) -> list[Command]:
        """Bring changed ConfigMaps and Secrets into a running pod, as the kubelet does about once a minute."""
        context, commands = self._context, list[Command]()
        if context.now_ns >= state.refresh_at_ns:
            state.refresh_at_ns = context.now_ns + context.scaled_ns(REFRESH_S)
            for spec in state.pod["spec"]["containers"]:
                before = state.mounts.get(spec["name"])
                if before is None:
                    continue
                try:
                    now = mounts(context.store, state.pod, spec)
                except MissingReference:
                    continue
                if now != before:
                    state.mounts[spec["name"]] = now
                    commands.append(RefreshMounts(uid=state.uid, container=spec["name"], mounts=now))
        context.requeue(state.refresh_at_ns)
        return commands
