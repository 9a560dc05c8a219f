"""What faults and episodes may ask of a platform, and the base that journals every change and undoes it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NoReturn

from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.platforms.impairments import Impairment, impairment_record
from faultset.collector.platforms.journal import (
    Journal,
    UndoOperation,
    restoring_change,
    undo_of_delete,
    undo_of_exec,
    undo_of_impairment,
    undo_of_patch,
    undo_of_secret,
)
from faultset.collector.platforms.objects import Object, ObjectNotFound, is_active, waits_in_back_off
from faultset.collector.sources.contract import Source
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import SecretKey, encoded
from faultset.core.errors import PlatformError
from faultset.core.polling import poll_until

Capability = Literal[
    "loss",
    "delay",
    "partition",
    "bandwidth",
    "abort",
    "reset",
    "hold",
    "course",
    "kill",
    "exec",
    "secret",
    "resize",
    "runtime",
]
"""What a fault can declare that it needs; `PlatformHost.unsupported_needs` says which of them a host lacks.

`loss`, `delay`, `partition` and `bandwidth` impair the network of a pod, `abort`, `reset` and `hold` single requests to
it (all by `Platform.impair`), `course` lets impairments change over time, `kill` ends a container's process, `exec`
runs a command in a pod, `secret` changes a Secret without its values in the journal, `resize` changes the resources
of a running pod through its object, and `runtime` wants an application of our own programs, which know builds and
admin commands.
"""


class CannotStart(PlatformError):
    """The application cannot start on this host, however often it is tried."""


class NotSupported(PlatformError):
    """This kind of platform cannot do that at all."""


class UndoFailed(PlatformError):
    """What an episode has changed is not as before; this says nothing about how busy the host was."""


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """How busy the hosts were since the load was started; None is not measured.

    Attributes
    ----------
    load_average, load_average_per_core
        The system's load average over a minute; of several nodes the highest.
    cores, nodes
        Size of the machine or cluster.
    worst_delay_ms
        How late a waiting process got the processor at worst, on any node.
    worst_scrape_lag_ms
        How late metrics were sampled at worst.
    collector_delay_ms
        How late the collector's own process got the processor at worst, where it is not on a node.
    collector_memory_mib, api_requests
        What the collector itself has used.
    """

    load_average: float | None = None
    load_average_per_core: float | None = None
    cores: int | None = None
    nodes: int | None = None
    worst_delay_ms: float | None = None
    worst_scrape_lag_ms: float | None = None
    collector_delay_ms: float | None = None
    collector_memory_mib: int | None = None
    api_requests: int | None = None

    @property
    def worst_ms(self) -> float | None:
        """The longest of the delays that were measured, in milliseconds; None when none was."""
        delays = (self.worst_delay_ms, self.worst_scrape_lag_ms, self.collector_delay_ms)
        return max((delay for delay in delays if delay is not None), default=None)

    def as_record(self) -> dict[str, Any]:
        """Return what was measured, for the label."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Platform(ABC):
    """What faults and checks see of a platform: Kubernetes objects, and the telemetry that is recorded.

    The verbs that change something write their undo operation to the journal before they act. A platform overrides
    what it can do of `exec`, `kill`, `impair` and `change_secret`; a fault that declares its needs is left out of
    campaigns on hosts that cannot.
    """

    name: str
    app: AppSpec
    selects_requests: ClassVar[bool] = True
    """Whether requests are impaired by their caller and by a share; otherwise all to a pod or a path are."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, Source]:
        """The source of every table, by the table's name."""

    @abstractmethod
    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Create or replace objects; not journaled."""

    @abstractmethod
    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""

    @abstractmethod
    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind that carry the labels."""

    @abstractmethod
    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""

    @abstractmethod
    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""

    @abstractmethod
    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return once `condition` holds; raise PlatformError naming `what` after `timeout_s`."""

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output.

        Parameters
        ----------
        undo
            Command that undoes this one; it runs in whichever pod has taken the place of this one by then.

        Raises
        ------
        PlatformError
            The command cannot be run, or it ends with a code other than 0.
        """
        self._refuse("run commands in pods", "exec")

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        self._refuse("kill containers", "kill")

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until undone; the impairment ends by itself when the collector dies."""
        self._refuse("impair networks", impairment_record(impairment)["kind"])

    def impaired_packets(self, pod: str) -> int:
        """Return how many packets of the pod the current impairment has met so far."""
        self._refuse("impair networks", "loss")

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Give a key of a Secret another text, which only the Secret holds.

        Parameters
        ----------
        copied_from
            A key of another Secret with the text of before, from which the undo copies it.

        Raises
        ------
        PlatformError
            That key has another text, or there is none.
        """
        self._refuse("change Secrets", "secret")

    def fail(self, pod: str) -> str | None:
        """Let the pod's containers run an image that does nothing until undone, and return that image.

        None where the platform has no way of its own, so that the image is to be patched.
        """
        return None

    def disturbance_evidence(self, pod: str) -> str | None:
        """Return a sentence on how the pod's network is disturbed at this moment; None when it is not."""
        packets = self.impaired_packets(pod)
        return f"{packets} packets of {pod} disturbed" if packets else None

    def _refuse(self, what: str, need: str) -> NoReturn:
        raise NotSupported(f"platform {self.name} cannot {what}; the fault must declare that it needs {need}")


class EpisodePlatform(Platform):
    """What runs an episode: a platform with a beginning, a load and an end."""

    ready_timeout_s: float
    """How long an application may take to become ready."""

    @abstractmethod
    def deploy(self) -> None:
        """Apply the application's manifests and start telemetry; return without waiting for readiness."""

    @abstractmethod
    def start_load(self, *, seed: int, rate_rps: float, mix: str, traffic: Traffic = CONSTANT_TRAFFIC) -> None:
        """Start the load against the application's entry; `traffic` says how the rate moves and where clients are."""

    @abstractmethod
    def step_load(self, factor: float) -> None:
        """Change the load to `factor` times its planned rate, from now on; nothing happens without a load."""

    @abstractmethod
    def stop_load(self) -> None:
        """Stop the load; requests without an answer count as unfinished."""

    @abstractmethod
    def undo(self) -> None:
        """Undo every change that the journal holds, newest first, then restart pods that wait in a back-off."""

    @abstractmethod
    def clock_offsets_s(self) -> dict[str, float]:
        """Return how far the clock of each table's source is ahead of the collector's, in seconds."""

    @abstractmethod
    def teardown(self) -> None:
        """End every process and remove every object of the episode; may be called twice."""

    def host_load(self) -> HostLoad:
        """Return how busy the hosts were since `start_load`; by default nothing is measured."""
        return HostLoad()

    def check_processes(self) -> None:
        """Raise PlatformError when something has ended or was stopped without which the episode cannot go on.

        Called every second.
        """


class JournaledObjects(ABC):
    """Objects of a cluster with verbs that journal their undo before they act; subclasses give the raw primitives.

    Parameters
    ----------
    app
        Whose label tells which workload a pod belongs to.
    journal
        Flushed to disk before each operation.
    """

    undo_timeout_s: float = 20.0
    """How long an undo waits for a pod to come up, or for an object to be gone."""
    undo_pause_s: float = 0.1

    def __init__(self, app: AppSpec, journal: Journal):
        self.app = app
        self.journal = journal

    @abstractmethod
    def find(self, kind: str, name: str) -> Object | None:
        """Return a copy of one object, or None."""

    @abstractmethod
    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind that carry the labels."""

    @abstractmethod
    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""

    @abstractmethod
    def _create(self, manifest: Mapping[str, Any]) -> bool:
        """Create an object; return False when one of that name exists."""

    @abstractmethod
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Apply a merge patch; raise ObjectNotFound. Not journaled."""

    @abstractmethod
    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        """Delete an object; raise ObjectNotFound. Not journaled."""

    @abstractmethod
    def _kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; not journaled."""

    @abstractmethod
    def _impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair the network of a pod in place of any impairment before; not journaled."""

    @abstractmethod
    def _lift(self, pod: str) -> None:
        """End the impairment of a pod; nothing happens when there is none."""

    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""
        match = self.find(kind, name)
        if match is None:
            raise ObjectNotFound(f'{kind} "{name}" not found')
        return match

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "change": change}
        shown = [name, *(change.get("data") or ()), *_leaves(change)]
        with self.journal.operation("patch", args, undo_of_patch(current, change), shown):
            self._patch(kind, name, change)
        return self.get(kind, name)

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "grace_period_s": grace_period_s}
        with self.journal.operation("delete", args, undo_of_delete(current), [name, *_leaves(current.get("spec"))]):
            self._delete(kind, name, grace_period_s)

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Give a key of a Secret another text; the journal holds the names and no text."""
        if self._secret_text(changed) != self._secret_text(copied_from):
            raise PlatformError(
                f"key {changed.key} of Secret {changed.secret} is not what key {copied_from.key} of Secret "
                f"{copied_from.secret} is, so that it could not be brought back; name a key with the same text"
            )
        args = {"name": changed.secret, "key": changed.key}
        with self.journal.operation("change-secret", args, undo_of_secret(changed, copied_from), [changed.secret]):
            self._patch("Secret", changed.secret, {"data": {changed.key: encoded(text)}})

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError when it fails."""
        target = self.get("Pod", pod)
        operations = undo_of_exec(self._workload_labels(target), undo) if undo is not None else None
        visible = [pod, *_leaves(target["spec"])]
        with self.journal.operation("exec", {"pod": pod, "argv": list(argv)}, operations, visible):
            return self.run_command(pod, argv)

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        target = self.get("Pod", pod)
        with self.journal.operation("kill", {"pod": pod}, None, [pod]):
            self._kill(target, target["spec"]["containers"][0]["name"])

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until undone; the impairment ends by itself when the collector dies."""
        target = self.get("Pod", pod)
        args = {"pod": pod, **impairment_record(impairment)}
        with self.journal.operation("impair", args, undo_of_impairment(pod), [pod]):
            self._impair(target, impairment)

    def undo(self) -> None:
        """Undo every change that the journal holds, newest first, then restart pods that wait in a back-off.

        Each undo is noted as soon as it is done; a failure does not keep the others back.

        Raises
        ------
        UndoFailed
            Some could not be undone; they stay open, and the next call tries them again.
        """
        failures: list[str] = []
        try:
            for seq, operations in self.journal.open_undo_operations():
                try:
                    for operation in operations:
                        self.execute_undo(operation)
                except PlatformError as error:
                    failures.append(f"operation {seq}: {error}")
                    continue
                self.journal.undone(seq)
        finally:
            self._restart_waiting()
        if failures:
            raise UndoFailed(f"{len(failures)} changes could not be undone ({failures[0]}); run 'faultset recover'")

    def execute_undo(self, operation: UndoOperation) -> None:
        """Execute one undo operation, which does no harm twice; raise PlatformError when it is not possible now."""
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

    def _is_of_app(self, pod: Object) -> bool:
        """Return whether the pod belongs to the application rather than to others in its namespace."""
        return True

    def _restart_waiting(self) -> None:
        """Delete pods that wait in a back-off; their owners replace them at once."""
        for pod in self.list("Pod"):
            if waits_in_back_off(pod) and self._is_of_app(pod):
                self._remove("Pod", pod["metadata"]["name"])

    def _remove(self, kind: str, name: str) -> None:
        """Delete an object at once, if it is still there."""
        try:
            self._delete(kind, name, 0)
        except ObjectNotFound:
            return

    def _patch_back(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Patch an object; a pod that is gone has been replaced by one without the change."""
        try:
            self._patch(kind, name, change)
        except ObjectNotFound:
            if kind != "Pod":
                raise

    def _copy_secret(self, name: str, key: str, source: str, source_key: str) -> None:
        text = ((self.find("Secret", source) or {}).get("data") or {}).get(source_key)
        if text is None:
            raise PlatformError(f"Secret {source} has no key {source_key} from which Secret {name} could be restored")
        self._patch("Secret", name, {"data": {key: text}})

    def _create_again(self, manifest: Mapping[str, Any]) -> None:
        """Create an object, or restore the content of one that was made meanwhile.

        One that is being deleted is waited for, one that cannot be changed to that content is deleted first.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]

        def is_restored() -> bool:
            if self._create(manifest):
                return True
            current = self.find(kind, name)
            if current is not None and not current["metadata"].get("deletionTimestamp"):
                if self._restore_content(current, manifest):
                    return True
                self._remove(kind, name)
            return False

        if not poll_until(is_restored, timeout_s=self.undo_timeout_s, pause_s=self.undo_pause_s):
            raise PlatformError(f'{kind} "{name}" is still being deleted after {self.undo_timeout_s:g} s')

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
        deadline = time.monotonic() + self.undo_timeout_s
        while True:
            pods = [pod for pod in self.list("Pod", labels) if is_active(pod)]
            try:
                if not pods:
                    raise PlatformError(f"no pod carries the labels {dict(labels)}")
                # time stamps have whole seconds; of pods as old as each other the last in the list counts
                newest = sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])[-1]
                self.run_command(newest["metadata"]["name"], argv)
                return
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(self.undo_pause_s)

    def _secret_text(self, place: SecretKey) -> str:
        data = self.get("Secret", place.secret).get("data") or {}
        if place.key not in data:
            raise PlatformError(f"Secret {place.secret} has no key {place.key}; it has {', '.join(data) or 'none'}")
        return data[place.key]

    def _workload_labels(self, pod: Object) -> dict[str, str]:
        labels = pod["metadata"].get("labels") or {}
        key = self.app.label_key
        return {key: labels[key]} if key in labels else dict(labels)


class JournaledPlatform(JournaledObjects, EpisodePlatform):
    """The base of all platforms here: the verbs and the undo of `JournaledObjects`, and one way to wait."""

    poll_s: ClassVar[float] = 0.02

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Return once `condition` holds; raise PlatformError naming `what` after `timeout_s`."""

        def holds() -> bool:
            if condition():
                return True
            self._check_waiting()
            return False

        if not poll_until(holds, timeout_s=timeout_s, pause_s=self.poll_s):
            raise PlatformError(f"waited {timeout_s:g} s without success for {what}; {self._describe_unready()}")

    def _check_waiting(self) -> None:
        """Raise PlatformError when waiting has become pointless."""

    @abstractmethod
    def _describe_unready(self) -> str:
        """Return one sentence about what is not ready."""


def _leaves(change: Any) -> Iterator[str]:
    """Yield the plain values in a change: an operator who looks at the object sees them."""
    if isinstance(change, Mapping):
        for value in change.values():
            yield from _leaves(value)
    elif isinstance(change, list | tuple):
        for value in change:
            yield from _leaves(value)
    elif change is not None:
        yield str(change)
