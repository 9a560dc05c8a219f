"""Changes of objects as kubectl describes them, made into merge patches. Pure functions."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import jsonpointer
import yaml

from faultset.collector.mitigation.kubectl.errors import CommandRefused
from faultset.collector.platforms.journal import merge
from faultset.collector.platforms.objects import Object

_MERGE_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
}
"""By which key the elements of a list are merged, as the API's schema has it (`x-kubernetes-patch-merge-key`)."""


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


def patched(current: Object, text: str, kind_of_patch: str) -> Object:
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
    return _with_containers(template, images, "image")


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


def _with_containers(template: Mapping[str, Any], values: Mapping[str, str], field: str) -> dict[str, Any]:
    made = copy.deepcopy(dict(template))
    names = [container["name"] for container in made["spec"]["containers"]]
    for name in values:
        if name not in (*names, "*"):
            raise CommandRefused(f'unable to find container named "{name}"; there are {", ".join(names)}')
    for container in made["spec"]["containers"]:
        value = values.get(container["name"], values.get("*"))
        if value is not None:
            container[field] = value
    return made
