"""How the changes that a journal holds are undone, newest first."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.objects import Object, ObjectNotFound
from faultset.collector.platforms.api.pod_state import is_active, waits_in_back_off
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.journal.undo_operations import UndoOperation, restoring_change
from faultset.core.errors import PlatformError


class UndoFailed(PlatformError):
    """What an episode has changed is not as before; this says nothing about how busy the host was."""


def undo_all(journal: Journal, execute: Callable[[UndoOperation], None]) -> None:
    """Undo everything that is still open, each noted as soon as it is done; a failure does not keep the others back.

    Parameters
    ----------
    execute
        Executes one undo operation; doing it twice must do no harm.

    Raises
    ------
    UndoFailed
        Some could not be undone; they stay open, and the next call tries them again.
    """
    failed: list[str] = []
    for seq, operations in journal.open_undo_operations():
        try:
            for operation in operations:
                execute(operation)
        except PlatformError as error:
            failed.append(f"operation {seq}: {error}")
            continue
        journal.undone(seq)
    if failed:
        raise UndoFailed(f"{len(failed)} changes could not be undone ({failed[0]}); run 'faultset recover'")


class UndoExecutor(ABC):
    """Executes undo operations on a platform, each of which may be executed twice without harm.

    Attributes
    ----------
    timeout_s
        How long to wait for a pod to come up, or for an object to be gone.
    pause_s
        How long to wait before another look.
    """

    timeout_s: float
    pause_s: float

    @abstractmethod
    def _find(self, kind: str, name: str) -> Object | None:
        """Return one object, or None."""

    @abstractmethod
    def _list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return all objects of a kind that carry the labels."""

    @abstractmethod
    def _create(self, wanted: Mapping[str, Any]) -> bool:
        """Create an object; say whether it was created, or existed already."""

    @abstractmethod
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Apply a merge patch; raise ObjectNotFound."""

    @abstractmethod
    def _delete(self, kind: str, names: Sequence[str]) -> None:
        """Delete objects at once, those that are still there."""

    @abstractmethod
    def _run(self, pod: str, argv: Sequence[str]) -> None:
        """Run a command in the pod's main container."""

    @abstractmethod
    def _lift(self, pod: str) -> None:
        """End the impairment of a pod; nothing happens when there is none."""

    def execute(self, operation: UndoOperation) -> None:
        """Execute one undo operation; raise PlatformError when it is not possible now."""
        match operation["verb"]:
            case "patch":
                self._patch_back(operation["kind"], operation["name"], operation["change"])
            case "apply":
                self._create_again(operation["object"])
            case "release-claim":
                self._patch("PersistentVolume", operation["volume"], {"spec": {"claimRef": None}})
            case "exec":
                self._run_in_newest(operation["labels"], operation["argv"])
            case "copy-secret":
                self._copy_secret(operation["name"], operation["key"], *operation["from"])
            case "lift":
                self._lift(operation["pod"])
            case verb:
                raise PlatformError(f"the journal has an undo operation {verb!r} that this release does not know")

    def restart_waiting(self, concerns: Callable[[Object], bool] = lambda pod: True) -> None:
        """Delete the pods in question that wait in a back-off; their owners replace them at once."""
        waiting = [pod for pod in self._list("Pod") if waits_in_back_off(pod) and concerns(pod)]
        self._delete("Pod", [pod["metadata"]["name"] for pod in waiting])

    def _patch_back(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Patch an object; a pod that is gone has been replaced by one without the change."""
        try:
            self._patch(kind, name, change)
        except ObjectNotFound:
            if kind != "Pod":
                raise

    def _copy_secret(self, name: str, key: str, source: str, source_key: str) -> None:
        """Give a key of a Secret the text of another one."""
        text = ((self._find("Secret", source) or {}).get("data") or {}).get(source_key)
        if text is None:
            raise PlatformError(f"Secret {source} has no key {source_key} from which Secret {name} could be restored")
        self._patch("Secret", name, {"data": {key: text}})

    def _create_again(self, wanted: Mapping[str, Any]) -> None:
        """Create an object, or restore the content of one that was made meanwhile.

        One that is being deleted is waited for, one that cannot be changed to that content is deleted first.
        """
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        deadline = time.monotonic() + self.timeout_s
        while not self._create(wanted):
            current = self._find(kind, name)
            if current is not None and not current["metadata"].get("deletionTimestamp"):
                if self._restore_content(current, wanted):
                    return
                self._delete(kind, [name])
            if time.monotonic() > deadline:
                raise PlatformError(f'{kind} "{name}" is still being deleted after {self.timeout_s:g} s')
            time.sleep(self.pause_s)

    def _restore_content(self, current: Object, former: Mapping[str, Any]) -> bool:
        """Give an object the content of a former one; return False where some field may not be changed."""
        change = restoring_change(current, former)
        try:
            if change:
                self._patch(former["kind"], former["metadata"]["name"], change)
        except PlatformError:
            return False
        return True

    def _run_in_newest(self, labels: Mapping[str, str], argv: Sequence[str]) -> None:
        """Run a command in the newest pod of a workload, which may have to come up first."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            pods = [pod for pod in self._list("Pod", labels) if is_active(pod)]
            try:
                if not pods:
                    raise PlatformError(f"no pod carries the labels {dict(labels)}")
                # time stamps have whole seconds; of pods as old as each other the last in the list counts
                newest = sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])[-1]
                self._run(newest["metadata"]["name"], argv)
                return
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(self.pause_s)
