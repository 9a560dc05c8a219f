"""What commands act on: the platform, and the objects of the application within it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.mitigation.kubectl.kinds import WRITABLE
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.journal import merge_patch
from faultset.collector.platforms.objects import Object, ObjectNotFound
from faultset.core.errors import PlatformError
from faultset.datasets.kubectl.kinds import full_name, resource_name
from faultset.datasets.kubectl.pod_names import workload_of_pod
from faultset.datasets.kubectl.selectors import label_selector


@dataclass(frozen=True, kw_only=True)
class KubectlSession:
    """A platform as an operator of its application sees it.

    Attributes
    ----------
    namespaces
        Names under which the application's namespace is known; every other is refused.
    known
        Kind and name of the objects that the application had before the fault; nothing else may be made.
    folder
        Where the files of `apply -f` lie; None when there are none.
    clock
        Returns the time in nanoseconds since 1970.
    sleep
        Waits, in seconds; raises when the episode is interrupted.
    by_owner
        Whether a pod that is not there is taken for the newest pod of the same owner, because the commands were given
        to another run of the application.
    resolved
        Names of such pods with the pods that they were taken for, in their order.
    """

    platform: Platform
    namespaces: frozenset[str]
    known: frozenset[tuple[str, str]]
    folder: Path | None
    clock: Callable[[], int]
    sleep: Callable[[float], None]
    by_owner: bool = False
    resolved: list[tuple[str, str]] = field(default_factory=list)

    def check_namespace(self, namespace: str | None) -> None:
        """Raise CommandRefused for the namespace of somebody else."""
        if namespace is not None and namespace not in self.namespaces:
            raise CommandRefused(
                f"namespace {namespace} is not the application's; leave -n out, or give {min(self.namespaces)}"
            )

    def get(self, kind: str, name: str) -> Object:
        """Return one object; raise PlatformError with the API server's words when there is none."""
        try:
            return self.platform.get(kind, name)
        except ObjectNotFound:
            present = self._pod_of_same_owner(name) if kind == "Pod" and self.by_owner else None
            if present is not None:
                self.resolved.append((name, present["metadata"]["name"]))
                return present
            raise PlatformError(f'Error from server (NotFound): {resource_name(kind)} "{name}" not found') from None

    def _pod_of_same_owner(self, name: str) -> Object | None:
        """Return the newest pod of the Deployment that a pod of this name had; None without one."""
        try:
            selector = self.platform.get("Deployment", workload_of_pod(name))["spec"]["selector"].get("matchLabels", {})
        except ObjectNotFound:
            return None
        alive = [one for one in self.platform.list("Pod", selector) if not one["metadata"].get("deletionTimestamp")]
        return max(alive, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", default=None)

    def found(self, kind: str, selector: str | None = None) -> list[Object]:
        """Return the objects of a kind, those that a label selector selects when one is given."""
        if not selector:
            return list(self.platform.list(kind))
        wanted = label_selector(selector)
        return [one for one in self.platform.list(kind) if wanted.matches(one["metadata"].get("labels") or {})]

    def change(self, current: Object, wanted: Mapping[str, Any], done: str) -> str:
        """Make one object of another, and return what kubectl says of it."""
        kind, name = current["kind"], current["metadata"]["name"]
        self.must_be_writable(kind)
        for key in ("apiVersion", "kind"):
            if wanted.get(key) != current[key]:
                raise CommandRefused(f"{key} of {full_name(kind, name)} cannot be changed; leave it as it is")
        if wanted.get("metadata", {}).get("name") != name:
            raise CommandRefused(f"the name of {full_name(kind, name)} cannot be changed; leave it as it is")
        if not isinstance(wanted.get("spec", {}), Mapping):
            raise CommandRefused(f"the spec of {full_name(kind, name)} must be a mapping")
        change = merge_patch(current, wanted)
        change.pop("status", None)
        if not change:
            return f"{full_name(kind, name)} {done} (no change)"
        self.platform.patch(kind, name, change)
        return f"{full_name(kind, name)} {done}"

    def must_be_writable(self, kind: str) -> None:
        """Raise CommandRefused for kinds that no command may change."""
        if kind not in WRITABLE:
            raise CommandRefused(
                f"{resource_name(kind)} are not the application's; only what belongs to it may be changed"
            )
