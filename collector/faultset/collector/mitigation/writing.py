"""Verbs of kubectl that change objects or wait: patch, apply, replace, delete, scale, set, label, annotate, rollout."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonpatch
import jsonpointer
import yaml

from faultset.collector.mitigation.live_state import WORKLOADS, CommandRefused, KubectlSession
from faultset.collector.platforms.journal import SERVER_FIELDS, list_assigned_fields, merge
from faultset.collector.platforms.objects import ObjectNotFound, is_rolled_out
from faultset.core.errors import PlatformError
from faultset.core.reading.regular_files import read_regular
from faultset.core.times import rfc3339
from faultset.datasets.kubectl.commands import KubectlCommand
from faultset.datasets.kubectl.kinds import CATEGORY_ALL, Reference, full_name, references, resource_name, type_name
from faultset.datasets.kubectl.printing import in_columns
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

LARGEST_MANIFEST_BYTES = 2**20
MAX_REPLICAS = 10
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
REVISION = "deployment.kubernetes.io/revision"
HASH_LABEL = "pod-template-hash"
POLL_S = 0.5
_MERGE_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
}
"""By which key the elements of a list are merged, as the API's schema has it (`x-kubernetes-patch-merge-key`)."""


def patch(session: KubectlSession, command: KubectlCommand) -> str:
    """Change fields of objects."""
    text, kind_of_patch = command.flags["--patch"], command.flags.get("--type", "strategic")
    return _change_each(
        session, command.arguments, lambda current: apply_patch(current, text, kind_of_patch), "patched"
    )


def apply(session: KubectlSession, command: KubectlCommand) -> str:
    """Create or change the objects of a manifest; only objects that the application had may be made."""
    lines = []
    for wanted in _manifests(session, command.flags["--filename"]):
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        session.require_writable(kind)
        session.state.check_namespace(wanted["metadata"].get("namespace"))
        try:
            current = session.platform.get(kind, name)
        except ObjectNotFound:
            if (kind, name) not in session.known:
                raise CommandRefused(
                    f"{full_name(kind, name)} is not the application's, which had none before; only what belongs to it "
                    "may be made"
                ) from None
            session.platform.apply([wanted])
            lines.append(f"{full_name(kind, name)} created")
            continue
        content = {key: value for key, value in wanted.items() if key != "status"}
        content["metadata"] = {key: value for key, value in wanted["metadata"].items() if key not in SERVER_FIELDS}
        lines.append(session.change(current, strategic_merge(current, content), "configured"))
    return "\n".join(lines)


def replace(session: KubectlSession, command: KubectlCommand) -> str:
    """Give objects the content, labels and annotations of a manifest; other fields are removed."""
    lines = []
    for wanted in _manifests(session, command.flags["--filename"]):
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        session.require_writable(kind)
        session.state.check_namespace(wanted["metadata"].get("namespace"))
        current = session.state.get(kind, name)
        written = ("labels", "annotations")
        metadata = {key: value for key, value in current["metadata"].items() if key not in written}
        metadata |= {key: wanted["metadata"][key] for key in written if key in wanted["metadata"]}
        content = {key: value for key, value in wanted.items() if key != "status"} | {"metadata": metadata}
        if isinstance(content.get("spec"), Mapping):
            content["spec"] = {**list_assigned_fields(current), **content["spec"]}
        lines.append(session.change(current, content, "replaced"))
    return "\n".join(lines)


def delete(session: KubectlSession, command: KubectlCommand) -> str:
    """Delete objects; controllers replace deleted pods."""
    flags = command.flags
    grace_s = 0.0 if "--force" in flags else 1.0 if "--now" in flags else None
    lines = []
    for kind, name in _references(session, command):
        session.require_writable(kind)
        if name is None and command.selector is None and "--all" not in flags:
            raise CommandRefused(f"which {resource_name(kind)}? give names, a selector with -l, or --all")
        bodies = [session.state.get(kind, name)] if name else session.state.objects(kind, command.selector)
        for body in bodies:
            present = body["metadata"]["name"]
            session.platform.delete(kind, present, grace_period_s=flags.get("--grace-period", grace_s))
            lines.append(f'{type_name(kind)} "{present}" deleted')
    return "\n".join(lines) or "No resources found"


def scale(session: KubectlSession, command: KubectlCommand) -> str:
    """Change the number of a workload's pods."""

    def scaled(current: Object) -> Object:
        _require_kind(current, (*WORKLOADS, "ReplicaSet"))
        return {**current, "spec": {**current["spec"], "replicas": command.flags["--replicas"]}}

    return _change_each(session, command.arguments, scaled, "scaled")


def set_image(session: KubectlSession, command: KubectlCommand) -> str:
    """Change images of a workload's containers: `deployment/geo CONTAINER=IMAGE`."""
    words, images = _split_pairs(command.arguments)
    return _change_templates(session, words, lambda template: with_images(template, images), "image updated")


def set_environment(session: KubectlSession, command: KubectlCommand) -> str:
    """Change environment variables of a workload: `deployment/geo NAME=VALUE NAME-`."""
    words, values = _split_changes(command.arguments)
    return _change_templates(session, words, lambda template: with_environment(template, values), "env updated")


def set_resources(session: KubectlSession, command: KubectlCommand) -> str:
    """Change requests and limits of a workload's containers."""
    quantities = {
        key: _quantities(command.flags[f"--{key}"]) for key in ("limits", "requests") if command.flags.get(f"--{key}")
    }
    if not quantities:
        raise CommandRefused("--limits or --requests is needed, for instance --limits cpu=500m,memory=256Mi")
    names = command.flags["--containers"].split(",") if "--containers" in command.flags else []
    return _change_templates(
        session,
        command.arguments,
        lambda template: with_resources(template, names, quantities),
        "resource requirements updated",
    )


def set_selector(session: KubectlSession, command: KubectlCommand) -> str:
    """Replace the selector of a Service: `svc/geo key=value`."""
    words, selector = _split_pairs(command.arguments)

    def selected(current: Object) -> Object:
        _require_kind(current, ("Service",))
        return {**current, "spec": {**current["spec"], "selector": selector}}

    return _change_each(session, words, selected, "selector updated")


def set_metadata(session: KubectlSession, command: KubectlCommand) -> str:
    """Change labels or annotations: `pod/x key=value key-`."""
    words, values = _split_changes(command.arguments)
    field, done = ("labels", "labeled") if command.verb == "label" else ("annotations", "annotated")

    def changed(current: Object) -> Object:
        pairs = {**(current["metadata"].get(field) or {}), **values}
        kept = {key: value for key, value in pairs.items() if value is not None}
        others = {key: value for key, value in current["metadata"].items() if key != field}
        return {**current, "metadata": {**others, field: kept} if kept else others}

    return _change_each(session, words, changed, done)


def _change_each(session: KubectlSession, words: Sequence[str], make: Callable[[Object], Any], done: str) -> str:
    lines = []
    for kind, name in references(words, session.state.kind_of, ()):
        if name is None:
            raise CommandRefused(f"which {resource_name(kind)}? give a name, for instance {kind.lower()}/NAME")
        session.require_writable(kind)
        current = session.state.get(kind, name)
        lines.append(session.change(current, make(copy.deepcopy(current)), done))
    return "\n".join(lines)


def _change_templates(
    session: KubectlSession, words: Sequence[str], make: Callable[[Mapping[str, Any]], Any], done: str
) -> str:
    def changed(current: Object) -> Object:
        _require_kind(current, WORKLOADS)
        return {**current, "spec": {**current["spec"], "template": make(current["spec"]["template"])}}

    return _change_each(session, words, changed, done)


def _references(session: KubectlSession, command: KubectlCommand) -> list[Reference]:
    of_all = tuple(kind for kind in CATEGORY_ALL if kind in session.state.kinds)
    return references(command.arguments, session.state.kind_of, of_all, command.selector)


def _require_kind(body: Object, kinds: Sequence[str]) -> None:
    if body["kind"] not in kinds:
        names = ", ".join(resource_name(kind) for kind in kinds)
        raise CommandRefused(f"this is possible for {names} only; found {type_name(body['kind'])}")


def _split_changes(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """Return the words that name objects, and the values of `name=value`, None for each `name-`."""
    objects: list[str] = []
    values: dict[str, str | None] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            values[name] = value
        elif word.endswith("-"):
            values[word[:-1]] = None
        else:
            objects.append(word)
    if not values:
        raise CommandRefused("at least one name=value, or name- to take one away, is needed")
    return objects, values


def _quantities(text: str) -> dict[str, str]:
    made = {name: value for name, _, value in (pair.partition("=") for pair in text.split(","))}
    if not all(made) or not all(made.values()):
        raise CommandRefused(f"limits and requests are NAME=QUANTITY joined by commas; found {text[:80]!r}")
    return made


def _split_pairs(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    objects, values = _split_changes(words)
    pairs = {name: value for name, value in values.items() if name and value}
    if len(pairs) < len(values):
        raise CommandRefused("at least one NAME=VALUE is needed after the objects")
    return objects, pairs


def _manifests(session: KubectlSession, file: str) -> list[Mapping[str, Any]]:
    path = Path(file)
    if session.folder is None or path.is_absolute() or ".." in path.parts:
        raise CommandRefused(f"files of -f lie beside the file of commands, under a relative path; found {file}")
    text = read_regular(
        session.folder / path, limit_bytes=LARGEST_MANIFEST_BYTES, below=session.folder, error=CommandRefused
    )
    try:
        documents = [one for one in yaml.safe_load_all(text.decode()) if one is not None]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        raise CommandRefused(f"{file} is no YAML; correct it") from None
    documents = [item for one in documents for item in _items(one)]
    for one in documents:
        kind, metadata = (one.get("kind"), one.get("metadata")) if isinstance(one, Mapping) else (None, None)
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(kind, str) or not isinstance(name, str):
            raise CommandRefused(f"{file} must hold objects with kind and metadata.name; correct it")
    return documents


def _items(one: Any) -> list[Any]:
    return list(one.get("items") or []) if isinstance(one, Mapping) and one.get("kind") == "List" else [one]


def restart(session: KubectlSession, command: KubectlCommand) -> str:
    """Replace the pods of workloads one by one."""
    lines = []
    for workload in _workloads(session, command.arguments):
        restarted = copy.deepcopy(workload)
        metadata = restarted["spec"]["template"].setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RESTARTED_AT: rfc3339(session.state.now_ns)}
        lines.append(session.change(workload, restarted, "restarted"))
    return "\n".join(lines)


def undo(session: KubectlSession, command: KubectlCommand) -> str:
    """Go back to an earlier pod template of a Deployment: the last one, or that of a revision."""
    lines = []
    for workload in _workloads(session, command.arguments):
        revisions = _revisions(session, workload)
        earlier = sorted(revisions)[:-1]
        revision = command.flags.get("--to-revision") or (earlier[-1] if earlier else 0)
        if revision not in revisions:
            name = full_name(workload["kind"], workload["metadata"]["name"])
            raise PlatformError(f"error: no rollout history found for {name}")
        template = copy.deepcopy(revisions[revision]["spec"]["template"])
        template.get("metadata", {}).get("labels", {}).pop(HASH_LABEL, None)
        lines.append(
            session.change(workload, {**workload, "spec": {**workload["spec"], "template": template}}, "rolled back")
        )
    return "\n".join(lines)


def list_revisions(session: KubectlSession, command: KubectlCommand) -> str:
    """List the revisions of Deployments."""
    tables = []
    for workload in _workloads(session, command.arguments):
        table = in_columns(
            ["REVISION", "CHANGE-CAUSE"], [(revision, None) for revision in sorted(_revisions(session, workload))]
        )
        tables.append(f"{full_name(workload['kind'], workload['metadata']['name'])}\n{table}")
    return "\n\n".join(tables)


def wait_for_rollout(session: KubectlSession, command: KubectlCommand) -> str:
    """Wait until Deployments are rolled out; raise PlatformError when they are not in time."""
    timeout_s = command.flags.get("--timeout", 60.0 if command.verb == "rollout status" else 30.0)
    lines = []
    for workload in _workloads(session, command.arguments):
        name = workload["metadata"]["name"]
        waited_s = 0.0
        while not is_rolled_out(workload := session.state.get(workload["kind"], name)):
            if waited_s >= timeout_s:
                ready = workload.get("status", {}).get("availableReplicas", 0)
                replicas = workload["spec"].get("replicas", 1)
                raise PlatformError(
                    f'error: timed out waiting for {workload["kind"].lower()} "{name}" rollout to finish: {ready} of '
                    f"{replicas} updated replicas are available"
                )
            session.sleep(POLL_S)
            waited_s += POLL_S
        lines.append(f'{workload["kind"].lower()} "{name}" successfully rolled out')
    return "\n".join(lines)


def _workloads(session: KubectlSession, words: Sequence[str]) -> list[Object]:
    made = []
    for kind, name in references(words, session.state.kind_of, ()):
        if kind not in WORKLOADS:
            raise CommandRefused(f"{resource_name(kind)} have no rollouts; name a deployment")
        made += [session.state.get(kind, name)] if name else session.platform.list(kind)
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


def strategic_merge(current: Any, change: Any, field: str = "") -> Any:
    """Apply a strategic merge patch: as a merge patch, but lists of named elements are merged by their key.

    >>> strategic_merge({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "2"}]})
    {'env': [{'name': 'A', 'value': '1'}, {'name': 'B', 'value': '2'}]}
    """
    if isinstance(change, Mapping):
        made = dict(current) if isinstance(current, Mapping) else {}
        for key, value in change.items():
            if value is None:
                made.pop(key, None)
            else:
                made[key] = strategic_merge(made.get(key), value, key)
        return made
    keys = _MERGE_KEYS.get(field)
    if not isinstance(change, list) or keys is None or not isinstance(current, list):
        return copy.deepcopy(change)
    made_list = copy.deepcopy(current)
    for element in change:
        key = next((key for key in keys if isinstance(element, Mapping) and key in element), None)
        places = [place for place, one in enumerate(made_list) if key is not None and one.get(key) == element[key]]
        if isinstance(element, Mapping) and element.get("$patch") == "delete":
            for place in places:
                del made_list[place]
        elif places:
            made_list[places[0]] = strategic_merge(made_list[places[0]], element)
        else:
            made_list.append(copy.deepcopy(element))
    return made_list


def apply_patch(current: Object, text: str, kind_of_patch: str) -> Object:
    """Return an object after `kubectl patch -p TEXT --type KIND`.

    Raises
    ------
    CommandRefused
        The patch is neither JSON nor YAML, or not of its type, or it does not fit the object.
    """
    change = parse(text)
    if kind_of_patch == "json":
        if not isinstance(change, list):
            raise CommandRefused(f"a JSON patch is a list of operations, so it cannot be applied: {text[:80]}")
        try:
            return jsonpatch.apply_patch(copy.deepcopy(current), change)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
            raise CommandRefused(f"the JSON patch cannot be applied: {error}; correct its operations") from None
    if not isinstance(change, Mapping):
        raise CommandRefused(f"a {kind_of_patch} patch is a mapping; found {json.dumps(change)[:80]}")
    return merge(current, change) if kind_of_patch == "merge" else strategic_merge(current, change)


def parse(text: str) -> Any:
    """Return what a text in JSON or YAML says; raise CommandRefused when it is neither."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise CommandRefused(f"neither JSON nor YAML: {text[:80]!r}; quote it as one word") from None


def with_images(template: Mapping[str, Any], images: Mapping[str, str]) -> dict[str, Any]:
    """Return a pod template with other images, by the name of the container; `*` is all containers."""
    changed = copy.deepcopy(dict(template))
    names = [container["name"] for container in changed["spec"]["containers"]]
    for name in images:
        if name not in (*names, "*"):
            raise CommandRefused(f'unable to find container named "{name}"; there are {", ".join(names)}')
    for container in changed["spec"]["containers"]:
        container["image"] = images.get(container["name"], images.get("*", container["image"]))
    return changed


def with_environment(template: Mapping[str, Any], values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return a pod template whose containers have other environment variables; None takes one away."""
    made = copy.deepcopy(dict(template))
    for container in made["spec"]["containers"]:
        kept = [one for one in container.get("env") or [] if one["name"] not in values]
        added = [{"name": name, "value": value} for name, value in values.items() if value is not None]
        places = {one["name"]: place for place, one in enumerate(container.get("env") or [])}
        end = len(places)
        ordered = sorted([*kept, *added], key=lambda one: places.get(one["name"], end))
        if ordered or container.get("env"):
            container["env"] = ordered
    return made


def with_resources(
    template: Mapping[str, Any], containers: Sequence[str], resources: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Return a pod template with other requests and limits of the containers, of all when none is named."""
    made = copy.deepcopy(dict(template))
    for container in made["spec"]["containers"]:
        if not containers or container["name"] in containers:
            container["resources"] = merge(container.get("resources") or {}, resources)
    return made
