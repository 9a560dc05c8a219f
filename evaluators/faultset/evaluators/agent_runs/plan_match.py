"""Plan match: commands that were proposed for a recorded episode, compared with the undo of its injection.

It says whether a proposal aims at what was broken. It never says whether it would have worked: a recording cannot be
repaired, other repairs can be as good, and the right object can be changed wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from faultset.agents.runs.recorded_commands import RecordedCommand
from faultset.datasets.kubectl.kinds import canonical_kind
from faultset.datasets.kubectl.pod_names import workload_of_pod

Aim = Literal["patch", "create", "delete", "restart", "exec", "undecided"]
"""What is done to an object: fields changed, made, deleted, its pods replaced, a program run in it."""
_WITH_VALUE = frozenset({
    "-p", "--patch", "--type", "-n", "--namespace", "--replicas", "-c", "--container", "--containers", "-l",
    "--selector", "--grace-period", "--limits", "--requests", "--timeout", "--to-revision", "-f", "--filename", "-o",
    "--output", "--for", "--cascade", "--field-manager",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ProposedChange:
    """What a command, or an undo, does to one object.

    Attributes
    ----------
    fields
        Paths of the fields that it changes, to their new values; empty where the whole object is meant.
    """

    aim: Aim
    kind: str
    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PlanMatch:
    """How far proposed commands meet the undo of an injection.

    Attributes
    ----------
    target
        Whether an object is changed that the undo changes; None where no command could be decided.
    field
        Whether one of the same fields is changed; None where the undo changes none by itself.
    kind
        Whether the same is done to it: fields changed, made again, a program run.
    value
        Whether such a field gets the value that it had before.
    undecided
        Commands whose aim cannot be told from their words.
    """

    target: bool | None
    field: bool | None
    kind: bool | None
    value: bool | None
    undo: tuple[ProposedChange, ...]
    proposed: tuple[ProposedChange, ...]
    undecided: tuple[str, ...]


def plan_match(
    commands: Sequence[RecordedCommand], journal: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int
) -> PlanMatch:
    """Compare commands with the undo of what a journal says was done from `start_ns` to `end_ns`."""
    undo = tuple(undo_changes(journal, start_ns, end_ns))
    proposed: list[ProposedChange] = []
    undecided: list[str] = []
    for one in commands:
        if not one.changes:
            continue
        found = list(proposed_changes(one.words)) if not one.problem else []
        if any(change.aim == "undecided" for change in found) or not found:
            undecided.append(one.line)
        proposed += [change for change in found if change.aim != "undecided"]
    pairs = [(a, b) for a in undo for b in proposed if (a.kind, a.name) == (b.kind, b.name)]
    fields = [(a, b, path) for a, b in pairs for path in a.fields if _touches(path, b.fields)]
    known = not undecided or bool(pairs)
    has_fields = any(change.fields for change in undo)
    return PlanMatch(
        target=bool(pairs) if known else None,
        field=bool(fields) if known and has_fields else None,
        kind=any(a.aim == b.aim for a, b in pairs) if known else None,
        value=any(_same(a.fields[path], b.fields.get(path)) for a, b, path in fields) if known and has_fields else None,
        undo=undo,
        proposed=tuple(proposed),
        undecided=tuple(undecided),
    )


def undo_changes(journal: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> Iterator[ProposedChange]:
    """Yield what the undo of the operations of a time does, to the workload where the journal names a pod."""
    for record in journal:
        if record.get("state") != "intent" or not start_ns <= int(record.get("time_ns", 0)) <= end_ns:
            continue
        for operation in record.get("inverse") or ():
            verb = operation.get("verb")
            if verb == "patch":
                yield from _patched(str(operation["kind"]), str(operation["name"]), operation["change"])
            elif verb == "apply":
                made = operation["object"]
                yield ProposedChange(aim="create", kind=made["kind"], name=made["metadata"]["name"], fields={})
            elif verb == "exec":
                pod = str((record.get("args") or {}).get("pod", ""))
                yield ProposedChange(aim="exec", kind="Deployment", name=workload_of_pod(pod), fields={})
        if record.get("verb") == "delete" and (record.get("args") or {}).get("kind") == "Pod":
            yield ProposedChange(
                aim="restart", kind="Deployment", name=workload_of_pod(record["args"]["name"]), fields={}
            )


def proposed_changes(words: Sequence[str]) -> Iterator[ProposedChange]:
    """Yield what a command of kubectl would change; one of aim "undecided" where that cannot be told."""
    rest, flags, program = _parts(words[1:])
    if words[:1] != ("kubectl",) or not rest:
        return
    verb, *rest = rest
    if verb in ("rollout", "set") and rest:
        verb = f"{verb} {rest.pop(0)}"
    if verb == "wait":
        return
    if verb == "exec":
        for word in rest[:1]:
            yield ProposedChange(
                aim="exec", kind="Deployment", name=workload_of_pod(word.rpartition("/")[2]), fields={}
            )
        return
    objects, values = _objects(rest)
    if not objects or verb not in _KNOWN or "-l" in flags or "--selector" in flags:
        yield ProposedChange(aim="undecided", kind="", name=" ".join(program or rest)[:80], fields={})
        return
    for kind, name in objects:
        if verb == "patch":
            yield from _by_patch(kind, name, flags)
        elif verb == "scale":
            yield ProposedChange(
                aim="patch", kind=kind, name=name, fields={"spec.replicas": _json(flags.get("--replicas"))}
            )
        elif verb in _FIELDS_OF:
            field = _FIELDS_OF[verb]
            prefix = f"{field}." if verb in ("label", "annotate", "set selector") else ""
            pairs = {f"{prefix}{key}": value for key, _, value in (one.partition("=") for one in values)}
            yield ProposedChange(aim="patch", kind=kind, name=name, fields=pairs if prefix else {field: values})
        elif kind == "Pod":
            yield ProposedChange(aim="restart", kind="Deployment", name=workload_of_pod(name), fields={})
        elif verb == "delete":
            yield ProposedChange(aim="delete", kind=kind, name=name, fields={})
        else:
            aim: Aim = "restart" if verb == "rollout restart" else "patch"
            fields = {"spec.template": None} if verb == "rollout undo" else {}
            yield ProposedChange(aim=aim, kind=kind, name=name, fields=fields)


_FIELDS_OF = {
    "set image": "spec.template.spec.containers", "set env": "spec.template.spec.containers",
    "set resources": "spec.template.spec.containers", "set selector": "spec.selector", "label": "metadata.labels",
    "annotate": "metadata.annotations",
}  # fmt: skip
_KNOWN = frozenset({"patch", "scale", "delete", "rollout restart", "rollout undo", *_FIELDS_OF})


def _parts(words: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Take words apart: those without a dash, flags with values, and what follows two dashes."""
    rest: list[str] = []
    flags: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return rest, flags, waiting
        if not word.startswith("-"):
            rest.append(word)
        else:
            name, equals, value = word.partition("=")
            flags[name] = value if equals else waiting.pop(0) if name in _WITH_VALUE and waiting else ""
    return rest, flags, []


def _objects(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return kind and name of each object, and the words with an equals sign or a dash at the end after them."""
    plain = [word for word in words if "=" not in word and not word.endswith("-")]
    values = [word for word in words if word not in plain]
    if plain and "/" not in plain[0]:
        kinds = [canonical_kind(one) for one in plain[0].split(",")]
        return [(kind, name) for kind in kinds if kind for name in plain[1:]], values
    pairs = [word.partition("/") for word in plain]
    return [(kind, name) for word, _, name in pairs if (kind := canonical_kind(word)) and name], values


def _by_patch(kind: str, name: str, flags: Mapping[str, str]) -> Iterator[ProposedChange]:
    given = _json(flags.get("-p", flags.get("--patch")))
    if isinstance(given, dict):
        yield from _patched(kind, name, given)
    elif isinstance(given, list):
        paths = {
            ".".join(part for part in str(one.get("path", "")).split("/") if part and not part.isdigit()): one.get(
                "value"
            )
            for one in given
            if isinstance(one, dict)
        }
        yield ProposedChange(aim="patch", kind=kind, name=name, fields=paths)
    else:
        yield ProposedChange(aim="undecided", kind=kind, name=name, fields={})


def _patched(kind: str, name: str, change: Mapping[str, Any]) -> Iterator[ProposedChange]:
    fields = dict(_leaves(change))
    restarts = set(fields) and all("/restartedAt" in path for path in fields)
    yield ProposedChange(
        aim="restart" if restarts else "patch", kind=kind, name=name, fields={} if restarts else fields
    )


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths of a change with their values; lists are values."""
    for key, inner in value.items():
        place = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, place)
        else:
            yield place, inner


def _touches(path: str, fields: Mapping[str, Any]) -> bool:
    return any(one == path or one.startswith(f"{path}.") or path.startswith(f"{one}.") for one in fields)


def _same(wanted: Any, given: Any) -> bool:
    """Whether a value holds all that is wanted; lists item by item, because patches may leave out what stays."""
    if isinstance(wanted, list) and isinstance(given, list) and len(wanted) == len(given):
        return all(_same(one, other) for one, other in zip(wanted, given, strict=True))
    if isinstance(wanted, Mapping) and isinstance(given, Mapping):
        return bool(given) and all(wanted.get(key) == value for key, value in given.items())
    return wanted == given


def _json(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
