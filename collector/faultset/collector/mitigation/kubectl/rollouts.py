"""Rollouts of Deployments: restart, undo, status, history."""

from __future__ import annotations

import copy

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.mitigation.kubectl.kinds import WORKLOADS, references
from faultset.collector.mitigation.kubectl.session import KubectlSession
from faultset.collector.platforms.objects import Object, is_rolled_out
from faultset.collector.platforms.observation.objects import rfc3339
from faultset.core.errors import PlatformError
from faultset.datasets.kubectl.kinds import full_name, resource_name
from faultset.datasets.kubectl.tables import in_columns

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
REVISION = "deployment.kubernetes.io/revision"
HASH_LABEL = "pod-template-hash"
POLL_S = 0.5


def restart(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Replace the pods of workloads one by one."""
    lines = []
    for found in _workloads(session, words):
        wanted = copy.deepcopy(found)
        metadata = wanted["spec"]["template"].setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RESTARTED_AT: rfc3339(session.clock())}
        lines.append(session.change(found, wanted, "restarted"))
    return "\n".join(lines)


def undo(session: KubectlSession, words: tuple[str, ...], to_revision: int) -> str:
    """Go back to an earlier pod template of a Deployment: the last one, or that of a revision."""
    lines = []
    for found in _workloads(session, words):
        revisions = _revisions(session, found)
        earlier = sorted(revisions)[:-1]
        wanted = to_revision or (earlier[-1] if earlier else 0)
        if wanted not in revisions:
            name = full_name(found["kind"], found["metadata"]["name"])
            raise PlatformError(f"error: no rollout history found for {name}")
        template = copy.deepcopy(revisions[wanted]["spec"]["template"])
        template.get("metadata", {}).get("labels", {}).pop(HASH_LABEL, None)
        lines.append(session.change(found, {**found, "spec": {**found["spec"], "template": template}}, "rolled back"))
    return "\n".join(lines)


def history(session: KubectlSession, words: tuple[str, ...]) -> str:
    """List the revisions of Deployments."""
    parts = []
    for found in _workloads(session, words):
        table = in_columns(["REVISION", "CHANGE-CAUSE"], [(one, None) for one in sorted(_revisions(session, found))])
        parts.append(f"{full_name(found['kind'], found['metadata']['name'])}\n{table}")
    return "\n\n".join(parts)


def status(session: KubectlSession, words: tuple[str, ...], *, timeout_s: float) -> str:
    """Wait until Deployments are rolled out; raise PlatformError when they are not in time."""
    lines = []
    for found in _workloads(session, words):
        name = found["metadata"]["name"]
        waited_s = 0.0
        while not is_rolled_out(found := session.get(found["kind"], name)):
            if waited_s >= timeout_s:
                ready = found.get("status", {}).get("availableReplicas", 0)
                wanted = found["spec"].get("replicas", 1)
                raise PlatformError(
                    f'error: timed out waiting for {found["kind"].lower()} "{name}" rollout to finish: {ready} of '
                    f"{wanted} updated replicas are available"
                )
            session.sleep(POLL_S)
            waited_s += POLL_S
        lines.append(f'{found["kind"].lower()} "{name}" successfully rolled out')
    return "\n".join(lines)


def _workloads(session: KubectlSession, words: tuple[str, ...]) -> list[Object]:
    made = []
    for kind, name in references(words):
        if kind not in WORKLOADS:
            raise CommandRefused(f"{resource_name(kind)} have no rollouts; name a deployment")
        made += [session.get(kind, name)] if name else session.platform.list(kind)
    return made


def _revisions(session: KubectlSession, deployment: Object) -> dict[int, Object]:
    uid = deployment["metadata"].get("uid")
    made = {}
    for found in session.platform.list("ReplicaSet"):
        owners = found["metadata"].get("ownerReferences") or []
        revision = (found["metadata"].get("annotations") or {}).get(REVISION, "")
        if revision.isdigit() and any(owner.get("uid") == uid for owner in owners):
            made[int(revision)] = found
    return made
