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
from faultset.collector.platforms.journal import SERVER_FIELDS, list_assigned_fields
from faultset.collector.platforms.objects import ObjectNotFound, is_rolled_out, merge
from faultset.core.errors import PlatformError
from faultset.core.regular_files import read_regular
from faultset.core.times import rfc3339
from faultset.datasets.kubectl.commands import KubectlCommand
from faultset.datasets.kubectl.kinds import CATEGORY_ALL, Reference, full_name, references, resource_name, type_name
from faultset.datasets.kubectl.printing import format_columns
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
"""Keys that identify the elements of list fields in a merge (`x-kubernetes-patch-merge-key` of the API schema)."""


def patch(session: KubectlSession, command: KubectlCommand) -> str:
    """Change fields of objects."""
    text, kind_of_patch = command.flags["--patch"], command.flags.get("--type", "strategic")
    return _change_each(
        session, command.arguments, lambda current: apply_patch(current, text, kind_of_patch), "patched"
    )


def apply(session: KubectlSession, command: KubectlCommand) -> str:
    """Create or change the objects of a manifest; only objects that the application had may be created."""
    lines = []
    for manifest in _read_manifests(session, command.flags["--filename"]):
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        session.require_writable(kind)
        session.state.check_namespace(manifest["metadata"].get("namespace"))
        try:
            current = session.platform.get(kind, name)
        except ObjectNotFound:
            if (kind, name) not in session.original_objects:
                raise CommandRefused(
                    f"{full_name(kind, name)} did not exist before; only objects that the application had may be "
                    "created"
                ) from None
            session.platform.apply([manifest])
            lines.append(f"{full_name(kind, name)} created")
            continue
        content = {key: value for key, value in manifest.items() if key != "status"}
        content["metadata"] = {key: value for key, value in manifest["metadata"].items() if key not in SERVER_FIELDS}
        lines.append(session.change(current, strategic_merge(current, content), "configured"))
    return "\n".join(lines)


def replace(session: KubectlSession, command: KubectlCommand) -> str:
    """Replace the content, labels and annotations of objects with the manifest's."""
    lines = []
    for manifest in _read_manifests(session, command.flags["--filename"]):
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        session.require_writable(kind)
        session.state.check_namespace(manifest["metadata"].get("namespace"))
        current = session.state.get(kind, name)
        replaced_fields = ("labels", "annotations")
        metadata = {key: value for key, value in current["metadata"].items() if key not in replaced_fields}
        metadata |= {key: manifest["metadata"][key] for key in replaced_fields if key in manifest["metadata"]}
        content = {key: value for key, value in manifest.items() if key != "status"} | {"metadata": metadata}
        if isinstance(content.get("spec"), Mapping):
            content["spec"] = {**list_assigned_fields(current), **content["spec"]}
        lines.append(session.change(current, content, "replaced"))
    return "\n".join(lines)


def delete(session: KubectlSession, command: KubectlCommand) -> str:
    """Delete objects; controllers replace deleted pods."""
    flags = command.flags
    grace_s = 0.0 if "--force" in flags else 1.0 if "--now" in flags else None
    lines = []
    for kind, name in _list_references(session, command):
        session.require_writable(kind)
        if name is None and command.selector is None and "--all" not in flags:
            raise CommandRefused(f"which {resource_name(kind)}? give names, a selector with -l, or --all")
        bodies = [session.state.get(kind, name)] if name else session.state.objects(kind, command.selector)
        for body in bodies:
            current_name = body["metadata"]["name"]
            session.platform.delete(kind, current_name, grace_period_s=flags.get("--grace-period", grace_s))
            lines.append(f'{type_name(kind)} "{current_name}" deleted')
    return "\n".join(lines) or "No resources found"


def scale(session: KubectlSession, command: KubectlCommand) -> str:
    """Change the number of a workload's pods."""

    def set_replicas(current: Object) -> Object:
        _require_kind(current, (*WORKLOADS, "ReplicaSet"))
        return {**current, "spec": {**current["spec"], "replicas": command.flags["--replicas"]}}

    return _change_each(session, command.arguments, set_replicas, "scaled")


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
        key: _parse_quantities(command.flags[f"--{key}"])
        for key in ("limits", "requests")
        if command.flags.get(f"--{key}")
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

    def replace_selector(current: Object) -> Object:
        _require_kind(current, ("Service",))
        return {**current, "spec": {**current["spec"], "selector": selector}}

    return _change_each(session, words, replace_selector, "selector updated")


def set_metadata(session: KubectlSession, command: KubectlCommand) -> str:
    """Change labels or annotations: `pod/x key=value key-`."""
    words, values = _split_changes(command.arguments)
    field, outcome = ("labels", "labeled") if command.verb == "label" else ("annotations", "annotated")

    def set_pairs(current: Object) -> Object:
        pairs = {**(current["metadata"].get(field) or {}), **values}
        remaining = {key: value for key, value in pairs.items() if value is not None}
        others = {key: value for key, value in current["metadata"].items() if key != field}
        return {**current, "metadata": {**others, field: remaining} if remaining else others}

    return _change_each(session, words, set_pairs, outcome)


def _change_each(session: KubectlSession, words: Sequence[str], change: Callable[[Object], Any], outcome: str) -> str:
    lines = []
    for kind, name in references(words, session.state.kind_of, ()):
        if name is None:
            raise CommandRefused(f"which {resource_name(kind)}? give a name, for instance {kind.lower()}/NAME")
        session.require_writable(kind)
        current = session.state.get(kind, name)
        lines.append(session.change(current, change(copy.deepcopy(current)), outcome))
    return "\n".join(lines)


def _change_templates(
    session: KubectlSession, words: Sequence[str], change: Callable[[Mapping[str, Any]], Any], outcome: str
) -> str:
    def change_template(current: Object) -> Object:
        _require_kind(current, WORKLOADS)
        return {**current, "spec": {**current["spec"], "template": change(current["spec"]["template"])}}

    return _change_each(session, words, change_template, outcome)


def _list_references(session: KubectlSession, command: KubectlCommand) -> list[Reference]:
    all_kinds = tuple(kind for kind in CATEGORY_ALL if kind in session.state.kinds)
    return references(command.arguments, session.state.kind_of, all_kinds, command.selector)


def _require_kind(body: Object, kinds: Sequence[str]) -> None:
    if body["kind"] not in kinds:
        names = ", ".join(resource_name(kind) for kind in kinds)
        raise CommandRefused(
            f"this works only for {names}, but the object is {type_name(body['kind'])}; name one of them"
        )


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
        raise CommandRefused("the command needs name=value to set a value, or name- to remove it; add one")
    return objects, values


def _parse_quantities(text: str) -> dict[str, str]:
    quantities = {name: value for name, _, value in (pair.partition("=") for pair in text.split(","))}
    if not all(quantities) or not all(quantities.values()):
        raise CommandRefused(f"limits and requests must be NAME=QUANTITY joined by commas, got {text[:80]!r}")
    return quantities


def _split_pairs(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    objects, values = _split_changes(words)
    pairs = {name: value for name, value in values.items() if name and value}
    if len(pairs) < len(values):
        raise CommandRefused("the command needs NAME=VALUE after the objects; add at least one")
    return objects, pairs


def _read_manifests(session: KubectlSession, file: str) -> list[Mapping[str, Any]]:
    path = Path(file)
    if session.folder is None or path.is_absolute() or ".." in path.parts:
        raise CommandRefused(f"-f must be a relative path below the folder of the command file, got {file}")
    text = read_regular(
        session.folder / path, limit_bytes=LARGEST_MANIFEST_BYTES, below=session.folder, error=CommandRefused
    )
    try:
        parsed = [document for document in yaml.safe_load_all(text.decode()) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
        raise CommandRefused(f"{file} is not YAML; correct it") from None
    manifests = [manifest for document in parsed for manifest in _expand_list(document)]
    for manifest in manifests:
        is_mapping = isinstance(manifest, Mapping)
        kind, metadata = (manifest.get("kind"), manifest.get("metadata")) if is_mapping else (None, None)
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        if not isinstance(kind, str) or not isinstance(name, str):
            raise CommandRefused(f"{file} must contain objects with kind and metadata.name; correct it")
    return manifests


def _expand_list(document: Any) -> list[Any]:
    is_list = isinstance(document, Mapping) and document.get("kind") == "List"
    return list(document.get("items") or []) if is_list else [document]


def restart(session: KubectlSession, command: KubectlCommand) -> str:
    """Restart workloads: change an annotation of their template, so that their pods are replaced."""
    lines = []
    for workload in _find_workloads(session, command.arguments):
        restarted = copy.deepcopy(workload)
        metadata = restarted["spec"]["template"].setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RESTARTED_AT: rfc3339(session.state.now_ns)}
        lines.append(session.change(workload, restarted, "restarted"))
    return "\n".join(lines)


def undo(session: KubectlSession, command: KubectlCommand) -> str:
    """Restore an earlier pod template of a Deployment: the previous one, or the given revision."""
    lines = []
    for workload in _find_workloads(session, command.arguments):
        revisions = _find_revisions(session, workload)
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
    for workload in _find_workloads(session, command.arguments):
        table = format_columns(
            ["REVISION", "CHANGE-CAUSE"], [(revision, None) for revision in sorted(_find_revisions(session, workload))]
        )
        tables.append(f"{full_name(workload['kind'], workload['metadata']['name'])}\n{table}")
    return "\n\n".join(tables)


def wait_for_rollout(session: KubectlSession, command: KubectlCommand) -> str:
    """Wait until workloads are rolled out; raise PlatformError after the timeout."""
    timeout_s = command.flags.get("--timeout", 60.0 if command.verb == "rollout status" else 30.0)
    lines = []
    for workload in _find_workloads(session, command.arguments):
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


def _find_workloads(session: KubectlSession, words: Sequence[str]) -> list[Object]:
    workloads = []
    for kind, name in references(words, session.state.kind_of, ()):
        if kind not in WORKLOADS:
            raise CommandRefused(f"{resource_name(kind)} have no rollouts; name a deployment")
        workloads += [session.state.get(kind, name)] if name else session.platform.list(kind)
    return workloads


def _find_revisions(session: KubectlSession, deployment: Object) -> dict[int, Object]:
    uid = deployment["metadata"].get("uid")
    revisions = {}
    for replica_set in session.platform.list("ReplicaSet"):
        owners = replica_set["metadata"].get("ownerReferences") or []
        revision = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "")
        if revision.isdigit() and any(owner.get("uid") == uid for owner in owners):
            revisions[int(revision)] = replica_set
    return revisions


def strategic_merge(current: Any, change: Any, field: str = "") -> Any:
    """Apply a strategic merge patch: like a merge patch, but lists of named elements are merged by their key.

    >>> strategic_merge({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "2"}]})
    {'env': [{'name': 'A', 'value': '1'}, {'name': 'B', 'value': '2'}]}
    """
    if isinstance(change, Mapping):
        merged = dict(current) if isinstance(current, Mapping) else {}
        for key, value in change.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic_merge(merged.get(key), value, key)
        return merged
    keys = _MERGE_KEYS.get(field)
    if not isinstance(change, list) or keys is None or not isinstance(current, list):
        return copy.deepcopy(change)
    elements = copy.deepcopy(current)
    for element in change:
        key = next((key for key in keys if isinstance(element, Mapping) and key in element), None)
        matches = [index for index, old in enumerate(elements) if key is not None and old.get(key) == element[key]]
        if isinstance(element, Mapping) and element.get("$patch") == "delete":
            for index in matches:
                del elements[index]
        elif matches:
            elements[matches[0]] = strategic_merge(elements[matches[0]], element)
        else:
            elements.append(copy.deepcopy(element))
    return elements


def apply_patch(current: Object, text: str, kind_of_patch: str) -> Object:
    """Return an object after `kubectl patch -p TEXT --type KIND`; raise CommandRefused if that is impossible."""
    change = parse(text)
    if kind_of_patch == "json":
        if not isinstance(change, list):
            raise CommandRefused(f"a JSON patch must be a list of operations, got {text[:80]}")
        try:
            return jsonpatch.apply_patch(copy.deepcopy(current), change)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
            raise CommandRefused(f"the JSON patch cannot be applied: {error}; correct its operations") from None
    if not isinstance(change, Mapping):
        raise CommandRefused(f"a {kind_of_patch} patch must be a mapping, got {json.dumps(change)[:80]}")
    return merge(current, change) if kind_of_patch == "merge" else strategic_merge(current, change)


def parse(text: str) -> Any:
    """Parse a string as JSON or YAML; raise CommandRefused if it is neither."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise CommandRefused(f"the patch must be JSON or YAML, got {text[:80]!r}; quote it as one word") from None


def with_images(template: Mapping[str, Any], images: Mapping[str, str]) -> dict[str, Any]:
    """Return a pod template with the given images by container name; `*` means all containers."""
    changed = copy.deepcopy(dict(template))
    names = [container["name"] for container in changed["spec"]["containers"]]
    for name in images:
        if name not in (*names, "*"):
            raise CommandRefused(f'unable to find container named "{name}"; expected one of {", ".join(names)}')
    for container in changed["spec"]["containers"]:
        container["image"] = images.get(container["name"], images.get("*", container["image"]))
    return changed


def with_environment(template: Mapping[str, Any], values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return a pod template with changed environment variables; None removes a variable."""
    changed = copy.deepcopy(dict(template))
    for container in changed["spec"]["containers"]:
        variables = container.get("env") or []
        unchanged = [variable for variable in variables if variable["name"] not in values]
        added = [{"name": name, "value": value} for name, value in values.items() if value is not None]
        positions = {variable["name"]: position for position, variable in enumerate(variables)}
        end = len(positions)
        ordered = sorted([*unchanged, *added], key=lambda variable: positions.get(variable["name"], end))
        if ordered or variables:
            container["env"] = ordered
    return changed


def with_resources(
    template: Mapping[str, Any], containers: Sequence[str], resources: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Return a pod template with changed requests and limits of the named containers, or of all if none is named."""
    changed = copy.deepcopy(dict(template))
    for container in changed["spec"]["containers"]:
        if not containers or container["name"] in containers:
            container["resources"] = merge(container.get("resources") or {}, resources)
    return changed
