"""Which objects a command is about: names, prefixes, label and field selectors, namespaces, order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from faultset.datasets.kubectl.jsonpath import select, text_of
from faultset.datasets.kubectl.kinds import CATEGORY_ALL, canonical_kind, references, resource_name
from faultset.datasets.kubectl.selectors import LabelSelector, field_terms, label_selector
from faultset.datasets.tools.kubectl.command_line import KubectlCommand
from faultset.datasets.tools.kubectl.resources import resource
from faultset.datasets.tools.recording import RECORDED_KINDS, Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, absent, not_recorded, refused

INJECTOR_KINDS = (
    "podchaos", "networkchaos", "stresschaos", "iochaos", "httpchaos", "timechaos", "dnschaos", "kernelchaos",
    "jvmchaos", "physicalmachinechaos", "schedule", "schedules", "workflow", "workflows", "chaosengine", "chaosengines",
    "chaosexperiment", "chaosexperiments", "chaosresult", "chaosresults",
)  # fmt: skip
"""Kinds of fault injectors; asking for them is asking for the answer."""
INJECTOR_NAMESPACES = ("chaos-mesh", "chaos-testing", "litmus", "chaosblade")
"""Where fault injectors live."""
_KINDS_OF_ALL = tuple(kind for kind in CATEGORY_ALL if kind in RECORDED_KINDS)


class NegativeAnswer(Exception):
    """A command that gets a negative answer instead of objects."""

    def __init__(self, observation: ToolAnswer) -> None:
        super().__init__(observation.text)
        self.observation = observation


@dataclass(frozen=True, kw_only=True)
class SelectedObject:
    """One object that a command is about."""

    kind: str
    name: str
    record: dict[str, Any]
    body: dict[str, Any]
    """The object as Kubernetes would print it."""


def check_namespace(recording: Recording, command: KubectlCommand) -> None:
    """Raise NegativeAnswer when a command asks for a namespace that was not recorded."""
    asked = command.flags.get("--namespace")
    if asked is None or asked == recording.namespace or command.flag("--all-namespaces"):
        return
    if asked in INJECTOR_NAMESPACES:
        raise NegativeAnswer(refused(f"the namespace {asked} belongs to no application"))
    raise NegativeAnswer(
        not_recorded(f'the namespace "{asked[:60]}"; the application runs in the namespace {recording.namespace}')
    )


def split_target(recording: Recording, command: KubectlCommand) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the kinds that a command asks for, and the names with their kinds where it gives some."""
    selector = command.flags.get("--selector")
    found = references(command.arguments, lambda word: _recorded_kind(recording, word), _KINDS_OF_ALL, selector)
    return list(dict.fromkeys(kind for kind, _ in found)), [(kind, name) for kind, name in found if name is not None]


def _recorded_kind(recording: Recording, text: str) -> str:
    word = text.strip().lower()
    if word.partition(".")[0] in INJECTOR_KINDS or "chaos" in word:
        raise NegativeAnswer(refused(f'objects of the kind "{text[:60]}" belong to no application'))
    kind = canonical_kind(text)
    if kind == "Event":
        return kind
    if kind == "Namespace":
        raise NegativeAnswer(not_recorded(f"namespaces; the application runs in the namespace {recording.namespace}"))
    if kind not in RECORDED_KINDS:
        raise NegativeAnswer(
            not_recorded(f'objects of the kind "{text[:60]}"; recorded are {", ".join(RECORDED_KINDS)}')
        )
    if not recording.has("objects"):
        raise NegativeAnswer(not_recorded("this recording has no objects"))
    return kind


def chosen(
    recording: Recording, command: KubectlCommand, kind: str, names: list[str], *, prefixes: bool = False
) -> list[SelectedObject]:
    """Return the objects of a kind that a command asks for, in its order.

    Raises
    ------
    NegativeAnswer
        A name is not there, or a selector needs something that was not recorded.
    """
    records = recording.object_records(kind)
    if names:
        records = dict(_named(kind, names, records, prefixes))
    records = _labelled(recording, command.flags.get("--selector"), kind, records)
    objects = [
        SelectedObject(kind=kind, name=name, record=record, body=resource(recording, kind, name, record))
        for name, record in sorted(records.items())
    ]
    if "--field-selector" in command.flags:
        objects = [one for one in objects if _fields_match(one.body, command.flags["--field-selector"])]
    if command.flags.get("--sort-by"):
        path = command.flags["--sort-by"].strip("{}")
        objects.sort(key=lambda one: _order(select(one.body, path)))
    return objects


def created_ns(recording: Recording, one: SelectedObject) -> int | None:
    """Return when an object came to be: as observed, or by the container of a pod that never restarted."""
    if one.record["created_ns"] is not None or one.kind != "Pod":
        return one.record["created_ns"]
    if any(container["restartCount"] for container in one.record["state"].get("containers", [])):
        return None
    starts = recording.kept_metric("container_start_time_seconds")
    starts = starts.loc[starts["pod"] == one.name, "value"]
    return round(starts.min() * 1e9) if len(starts) else None


def _named(
    kind: str, names: list[str], records: dict[str, dict[str, Any]], prefixes: bool
) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name in names:
        hits = [name] if name in records else [one for one in records if prefixes and one.startswith(name)]
        if not hits:
            raise NegativeAnswer(absent(resource_name(kind), name, records))
        found += [(one, records[one]) for one in hits]
    return found


def _labelled(
    recording: Recording, selector: str | None, kind: str, records: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    if not selector:
        return records
    wanted = label_selector(selector)
    if records and all("labels" in record["state"] for record in records.values()):
        return {name: record for name, record in records.items() if wanted.matches(record["state"]["labels"])}
    owners = _owners(recording, wanted)
    if owners is None:
        raise NegativeAnswer(not_recorded(f"labels of objects of the kind {kind}; use names, or list all"))
    return {name: record for name, record in records.items() if record["service"] in owners}


def _owners(recording: Recording, wanted: LabelSelector) -> set[str] | None:
    """Return the workloads that Services selected by labels while all was healthy; None where none did."""
    healthy = recording.object_records("Service", recording.context.reference_end_ns)
    labels = {str(record["service"]): record["state"].get("selector") or {} for record in healthy.values()}
    if not all(any(term.key in one for one in labels.values()) for term in wanted.terms):
        return None
    return {owner for owner, one in labels.items() if wanted.matches(one)}


def _fields_match(body: dict[str, Any], selector: str) -> bool:
    for path, sign, value in field_terms(selector):
        found = [text_of(one) for one in select(body, "." + path)]
        if not found:
            raise NegativeAnswer(not_recorded(f'the field "{path[:60]}" of objects of the kind {body["kind"]}'))
        if (value in found) != (sign != "!="):
            return False
    return True


def _order(found: list[Any]) -> tuple[int, float, str]:
    value = found[0] if found else None
    if isinstance(value, bool | int | float):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, text_of(value))
