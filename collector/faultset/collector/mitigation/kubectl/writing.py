"""Commands that change objects: patch, apply, replace, delete, scale, set, label, annotate."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from faultset.collector.mitigation.kubectl import changes
from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.mitigation.kubectl.kinds import WORKLOADS, references
from faultset.collector.mitigation.kubectl.session import KubectlSession
from faultset.collector.platforms.journal import assigned_fields
from faultset.collector.platforms.objects import Object, ObjectNotFound
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.kubectl.kinds import full_name, resource_name, type_name

LARGEST_MANIFEST_BYTES = 2**20
MOST_REPLICAS = 10


def patch(session: KubectlSession, words: tuple[str, ...], *, text: str, kind_of_patch: str) -> str:
    """Patch objects."""
    return _of_each(session, words, lambda found: changes.patched(found, text, kind_of_patch), "patched")


def apply(session: KubectlSession, file: str) -> str:
    """Create or change the objects of a manifest; only objects that the application had may be made."""
    lines = []
    for wanted in _manifests(session, file):
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        session.must_be_writable(kind)
        session.check_namespace(wanted["metadata"].get("namespace"))
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
        given = {key: value for key, value in wanted.items() if key != "status"}
        lines.append(session.change(current, changes.strategic_merge(current, given), "configured"))
    return "\n".join(lines)


def replace(session: KubectlSession, file: str) -> str:
    """Give objects the content, labels and annotations of a manifest; what it leaves out is removed."""
    lines = []
    for wanted in _manifests(session, file):
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        session.must_be_writable(kind)
        session.check_namespace(wanted["metadata"].get("namespace"))
        current = session.get(kind, name)
        written = ("labels", "annotations")
        metadata = {key: value for key, value in current["metadata"].items() if key not in written}
        metadata |= {key: wanted["metadata"][key] for key in written if key in wanted["metadata"]}
        content = {key: value for key, value in wanted.items() if key != "status"} | {"metadata": metadata}
        if isinstance(content.get("spec"), Mapping):
            content["spec"] = {**assigned_fields(current), **content["spec"]}
        lines.append(session.change(current, content, "replaced"))
    return "\n".join(lines)


def delete(
    session: KubectlSession, words: tuple[str, ...], *, grace_s: float | None, selector: str | None, of_all: bool
) -> str:
    """Delete objects."""
    lines = []
    for kind, name in references(words, selector):
        session.must_be_writable(kind)
        if name is None and selector is None and not of_all:
            raise CommandRefused(f"which {resource_name(kind)}? give names, a selector with -l, or --all")
        names = [name] if name else [one["metadata"]["name"] for one in session.found(kind, selector)]
        for given in names:
            one = session.get(kind, given)["metadata"]["name"]
            session.platform.delete(kind, one, grace_period_s=grace_s)
            lines.append(f'{type_name(kind)} "{one}" deleted')
    return "\n".join(lines) or "No resources found"


def scale(session: KubectlSession, words: tuple[str, ...], replicas: int) -> str:
    """Give workloads another number of replicas."""
    if not 0 <= replicas <= MOST_REPLICAS:
        raise CommandRefused(f"--replicas is from 0 to {MOST_REPLICAS} here; found {replicas}")

    def scaled(found: Object) -> Object:
        _must_be(found, (*WORKLOADS, "ReplicaSet"))
        return {**found, "spec": {**found["spec"], "replicas": replicas}}

    return _of_each(session, words, scaled, "scaled")


def set_image(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Change images of a workload's containers: `deployment/geo CONTAINER=IMAGE`."""
    objects, given = _split_pairs(words)
    return _of_templates(session, objects, lambda template: changes.with_images(template, given), "image updated")


def set_environment(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Change environment variables of a workload: `deployment/geo NAME=VALUE NAME-`."""
    objects = tuple(word for word in words if "=" not in word and not word.endswith("-"))
    given: dict[str, str | None] = {word[:-1]: None for word in words if "=" not in word and word.endswith("-")}
    for word in words:
        name, sign, value = word.partition("=")
        if sign:
            given[name] = value
    if not given:
        raise CommandRefused("at least one NAME=VALUE, or NAME- to take one away, is needed")
    return _of_templates(session, objects, lambda template: changes.with_environment(template, given), "env updated")


def set_resources(
    session: KubectlSession, words: tuple[str, ...], *, limits: str | None, requests: str | None, containers: str | None
) -> str:
    """Change requests and limits of a workload's containers."""
    given = {key: _quantities(text) for key, text in (("limits", limits), ("requests", requests)) if text}
    if not given:
        raise CommandRefused("--limits or --requests is needed, for instance --limits cpu=500m,memory=256Mi")
    names = containers.split(",") if containers else []
    return _of_templates(
        session, words, lambda template: changes.with_resources(template, names, given), "resource requirements updated"
    )


def set_selector(session: KubectlSession, words: tuple[str, ...]) -> str:
    """Replace the selector of a Service: `svc/geo key=value`."""
    objects, given = _split_pairs(words)

    def selected(found: Object) -> Object:
        _must_be(found, ("Service",))
        return {**found, "spec": {**found["spec"], "selector": given}}

    return _of_each(session, objects, selected, "selector updated")


def set_metadata(session: KubectlSession, words: tuple[str, ...], field: str) -> str:
    """Change labels or annotations: `pod/x key=value key-`."""
    objects = tuple(word for word in words if "=" not in word and not word.endswith("-"))
    removed = {word[:-1] for word in words if word not in objects and "=" not in word}
    given = {name: value for name, sign, value in (word.partition("=") for word in words) if sign}
    if not given and not removed:
        raise CommandRefused("at least one key=value, or key- to take one away, is needed")

    def changed(found: Object) -> Object:
        kept = {key: value for key, value in (found["metadata"].get(field) or {}).items() if key not in removed}
        others = {key: value for key, value in found["metadata"].items() if key != field}
        values = {**kept, **given}
        return {**found, "metadata": {**others, field: values} if values else others}

    return _of_each(session, objects, changed, "labeled" if field == "labels" else "annotated")


def _of_each(session: KubectlSession, words: tuple[str, ...], make: Any, done: str) -> str:
    lines = []
    for kind, name in references(words):
        if name is None:
            raise CommandRefused(f"which {resource_name(kind)}? give a name, for instance {kind.lower()}/NAME")
        session.must_be_writable(kind)
        found = session.get(kind, name)
        lines.append(session.change(found, make(copy.deepcopy(found)), done))
    return "\n".join(lines)


def _of_templates(session: KubectlSession, words: tuple[str, ...], make: Any, done: str) -> str:
    def changed(found: Object) -> Object:
        _must_be(found, WORKLOADS)
        return {**found, "spec": {**found["spec"], "template": make(found["spec"]["template"])}}

    return _of_each(session, words, changed, done)


def _must_be(found: Object, kinds: tuple[str, ...]) -> None:
    if found["kind"] not in kinds:
        names = ", ".join(resource_name(kind) for kind in kinds)
        raise CommandRefused(f"this is possible for {names} only; found {type_name(found['kind'])}")


def _quantities(text: str) -> dict[str, str]:
    made = {name: value for name, _, value in (pair.partition("=") for pair in text.split(","))}
    if not all(made) or not all(made.values()):
        raise CommandRefused(f"limits and requests are NAME=QUANTITY joined by commas; found {text[:80]!r}")
    return made


def _split_pairs(words: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    objects = tuple(word for word in words if "=" not in word)
    pairs = {name: value for name, sign, value in (word.partition("=") for word in words) if sign}
    if not pairs or not all(pairs) or not all(pairs.values()):
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
