"""The reading verbs of kubectl over a `ClusterState`: a recording up to a point in time, or a live platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.cluster_state import ClusterState, Usage
from faultset.datasets.kubectl.commands import (
    CommandError,
    KubectlCommand,
    ShellSyntaxError,
    VerbFlag,
    duration_s,
    read_flags,
    split_pipeline,
    whole_number,
)
from faultset.datasets.kubectl.documents import MissingFieldError, check_format, description, document, select, text_of
from faultset.datasets.kubectl.kinds import (
    CATEGORY_ALL,
    KINDS,
    Reference,
    canonical_kind,
    field_terms,
    object_kind,
    references,
    resource_name,
)
from faultset.datasets.kubectl.object_tables import Cells, Object, object_cells, object_tables
from faultset.datasets.kubectl.printing import (
    COLUMNS,
    UNRECORDED,
    USAGE_COLUMNS,
    Event,
    NegativeAnswer,
    ToolAnswer,
    age,
    answer_absent,
    answer_empty,
    answer_invalid,
    answer_not_recorded,
    answer_ok,
    answer_refused,
    cpu_text,
    event_cells,
    event_lines,
    field_line,
    format_columns,
    memory_text,
    stamp,
)

MAX_LINES = 2000
RECORDED_ONLY = "# recorded fields only"
_TAIL_OF_SELECTION = 10
_EVENT_FIELDS = {
    "involvedObject.name": "name", "involvedObject.kind": "kind", "regarding.name": "name", "regarding.kind": "kind",
    "type": "type", "reason": "reason",
}  # fmt: skip


def answer_line(text: str, carry_out: Callable[[list[str], bool], ToolAnswer]) -> ToolAnswer:
    """Answer a command line and filter the answer; never raise.

    `carry_out` answers the words of a command; its second argument is whether filters follow.
    """
    from faultset.datasets.kubectl.filters import apply_filters

    try:
        words, *filters = split_pipeline(text)
        answer = carry_out(words, bool(filters))
        if answer.status != "ok" or not filters:
            return answer
        text = apply_filters(answer.text, filters)
    except NegativeAnswer as negative:
        return negative.answer
    except ShellSyntaxError as error:
        return answer_refused(str(error))
    except CommandError as error:
        return answer_invalid(f"{error}.")
    return answer_ok(text) if text.strip() else answer_empty("no line passes the filters")


def read_command(verb: str, words: Sequence[str], *, has_filters: bool = False) -> KubectlCommand:
    """Parse a command with a reading verb; raise CommandError for an unknown verb or flag."""
    if verb not in READ_VERBS:
        raise CommandError(f'the verb must be one of {", ".join([*READ_VERBS, "rollout"])}, got "{verb[:40]}"')
    arguments, flags = read_flags(words, READ_FLAGS)
    return KubectlCommand(verb, arguments, flags, has_filters)


def answer(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    """Answer a command with a reading verb."""
    check_namespace(state, command)
    return READ_VERBS[command.verb](state, command)


def check_namespace(state: ClusterState, command: KubectlCommand) -> None:
    """Raise NegativeAnswer for a command about a different namespace."""
    if "--namespace" in command.flags and "--all-namespaces" not in command.flags:
        state.check_namespace(command.flags["--namespace"])


def choose_objects(
    state: ClusterState, command: KubectlCommand, kind: str, names: Sequence[str], *, prefixes: bool = False
) -> list[Object]:
    """Return the objects of a kind that a command selects, sorted by name or as the flag `--sort-by` says."""
    objects = state.objects(kind, command.selector)
    if names:
        bodies = {body["metadata"]["name"]: body for body in objects}
        selected: dict[str, Object] = {}
        for name in names:
            present = state.find_current_name(kind, name)
            matches = [present] if present in bodies else [key for key in bodies if prefixes and key.startswith(name)]
            if not matches:
                raise NegativeAnswer(answer_absent(resource_name(kind), name, bodies))
            selected |= {match: bodies[match] for match in matches}
        objects = [selected[name] for name in sorted(selected)]
    if "--field-selector" in command.flags:
        terms = field_terms(command.flags["--field-selector"])
        objects = [body for body in objects if all(_meets(state, body, *term) for term in terms)]
    if "--sort-by" in command.flags:
        path = command.flags["--sort-by"].strip("{}")
        objects.sort(key=lambda body: _sort_key(select(body, path)))
    return objects


def _meets(state: ClusterState, body: Object, path: str, sign: str, value: str) -> bool:
    values = [text_of(field) for field in select(body, "." + path)]
    if not values and state.is_partial:
        raise NegativeAnswer(answer_not_recorded(f'the field "{path[:60]}" of objects of the kind {body["kind"]}'))
    return (value in (values or [""])) == (sign != "!=")


def _sort_key(values: Sequence[Any]) -> tuple[int, float, str]:
    value = values[0] if values else None
    if isinstance(value, bool | int | float):
        return 1, float(value), ""
    return (0, 0.0, "") if value is None else (2, 0.0, text_of(value))


def _references(state: ClusterState, command: KubectlCommand) -> list[Reference]:
    of_all = tuple(kind for kind in CATEGORY_ALL if kind in state.kinds)
    return references(command.arguments, state.kind_of, of_all, command.selector)


def _objects_by_kind(
    state: ClusterState, command: KubectlCommand, selected: Sequence[Reference], *, prefixes: bool = False
) -> dict[str, list[Object]]:
    return {
        kind: choose_objects(
            state, command, kind, [name for key, name in selected if key == kind and name], prefixes=prefixes
        )
        for kind, _ in selected
    }


def _get(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    if "--watch" in command.flags or "--watch-only" in command.flags:
        return answer_refused("watching is interactive; repeat the command later")
    if "--raw" in command.flags:
        return answer_not_recorded("raw requests to the API server")
    selected = _references(state, command)
    if any(kind == "Event" for kind, _ in selected):
        return _events(state, command)
    by_kind = _objects_by_kind(state, command, selected)
    objects = [body for bodies in by_kind.values() for body in bodies]
    if not objects:
        plural = ", ".join(definition.plural for kind in by_kind if (definition := object_kind(kind)))
        return answer_empty(f"the namespace {state.namespace} has no such {plural}")
    output = command.flags.get("--output", "")
    if output in ("", "wide"):
        rows = {kind: [_build_row(state, body) for body in bodies] for kind, bodies in by_kind.items()}
        return answer_ok(
            object_tables(
                rows,
                wide=output == "wide",
                namespaces="--all-namespaces" in command.flags,
                labels="--show-labels" in command.flags,
                header="--no-headers" not in command.flags,
                show_kind="--show-kind" in command.flags,
                unknown=UNRECORDED if state.is_partial else "<none>",
            )
        )
    form = output.partition("=")[0]
    if state.is_partial and form in ("yaml", "json") and any(_is_digest(body) for body in objects):
        return answer_not_recorded("the content of ConfigMaps; of this one only a digest was recorded")
    single = len(selected) == 1 and selected[0][1] is not None
    try:
        text = document(objects, output, single=single, unknown=UNRECORDED if state.is_partial else None)
    except MissingFieldError as error:
        return answer_not_recorded(f"the field {error.path[:120]} of these objects")
    return answer_ok(f"{RECORDED_ONLY}\n{text}" if state.is_partial and form == "yaml" else text)


def _build_row(state: ClusterState, body: Object) -> Cells:
    return object_cells(body) | {"AGE": age(_age_s(state, body))} | state.cells(body)


def _age_s(state: ClusterState, body: Object) -> float | None:
    created_ns = state.created_ns(body)
    return None if created_ns is None else (state.now_ns - created_ns) / SECOND_NS


def _is_digest(body: Object) -> bool:
    return body["kind"] == "ConfigMap" and "data" not in body


def _describe(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    selected = _references(state, command)
    if any(kind == "Event" for kind, _ in selected):
        return _events(state, command)
    by_kind = _objects_by_kind(state, command, selected, prefixes=True)
    objects = [body for bodies in by_kind.values() for body in bodies]
    if not objects:
        return answer_empty(f"the namespace {state.namespace} has no such object")
    if state.is_partial and all(_is_digest(body) for body in objects):
        return answer_not_recorded("the content of ConfigMaps; of these only digests were recorded")
    events = _events_of_objects(state)
    return answer_ok("\n\n\n".join(_description_with_events(state, body, events) for body in objects))


def _events_of_objects(state: ClusterState) -> dict[tuple[str, str], list[Event]] | None:
    """Return the events by kind and name of their object, or None if no events were recorded."""
    by_object: dict[tuple[str, str], list[Event]] = {}
    try:
        for event in state.events():
            by_object.setdefault((event["kind"], event["name"]), []).append(event)
    except NegativeAnswer:
        return None
    return by_object


def _description_with_events(
    state: ClusterState, body: Object, events: Mapping[tuple[str, str], list[Event]] | None
) -> str:
    age_s = _age_s(state, body)
    lines = [RECORDED_ONLY] if state.is_partial else []
    lines += description(body, age=None if age_s is None else age(age_s))
    if events is None:
        return "\n".join([*lines, field_line("Events", UNRECORDED)])
    return "\n".join([*lines, *event_lines(events.get((body["kind"], body["metadata"]["name"]), []), state.now_ns)])


def _events(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    if "--watch" in command.flags:
        return answer_refused("watching is interactive; repeat the command later")
    if command.flags.get("--output", "") not in ("", "wide"):
        return answer_not_recorded("events as documents; list them as a table")
    events = state.events()
    for path, sign, value in field_terms(command.flags.get("--field-selector", "")):
        if path not in _EVENT_FIELDS:
            return answer_not_recorded(f'the field "{path[:60]}" of events')
        events = [event for event in events if (event[_EVENT_FIELDS[path]] == value) == (sign != "!=")]
    if "--types" in command.flags:
        events = [event for event in events if event["type"] in command.flags["--types"].split(",")]
    if "--for" in command.flags:
        kind, slash, name = command.flags["--for"].partition("/")
        if not slash:
            raise CommandError("--for needs a kind and a name, as in --for pod/NAME")
        events = [event for event in events if (event["kind"], event["name"]) == (canonical_kind(kind), name)]
    if not events:
        period = " since the start of the recording" if state.is_partial else ""
        return answer_empty(f"no such event in the namespace {state.namespace}{period}")
    header, rows = list(COLUMNS), [event_cells(event, state.now_ns) for event in events]
    if "--all-namespaces" in command.flags:
        header, rows = ["NAMESPACE", *header], [[state.namespace, *row] for row in rows]
    return answer_ok(format_columns(() if "--no-headers" in command.flags else header, rows))


def _logs(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    if "--follow" in command.flags:
        return answer_refused("following lines is interactive; repeat the command later")
    pods, note = logged_pods(state, command)
    lines = [line for pod in pods for line in _lines_of_pod(state, command, pod)]
    if not lines:
        return answer_empty(f"no log line of {', '.join(pods)} in that part of the recording")
    left_out = 0 if command.has_filters else max(0, len(lines) - MAX_LINES)
    if left_out:
        note += f"# {left_out} earlier lines are left out; use --tail, --since or grep\n"
    return answer_ok(note + "\n".join(lines[left_out:]))


def logged_pods(state: ClusterState, command: KubectlCommand) -> tuple[list[str], str]:
    """Return the pods named by the arguments of `kubectl logs`, and a note if one of several was chosen."""
    if command.selector is not None:
        pods = [body["metadata"]["name"] for body in choose_objects(state, command, "Pod", [])]
        if not pods:
            raise NegativeAnswer(answer_empty("no pod has these labels"))
        return pods, ""
    if not command.arguments:
        raise CommandError("kubectl logs needs a pod, as in kubectl logs POD or kubectl logs deploy/NAME")
    word, *containers = command.arguments
    if containers:
        command.flags.setdefault("--container", containers[0])
    if "/" in word:
        ((kind, name),) = references([word], state.kind_of, ())
    else:
        kind, name = "Pod", word
    assert name is not None
    if kind == "Pod":
        pod, names = state.find_current_name("Pod", name), state.pod_names()
        if pod not in names:
            raise NegativeAnswer(answer_absent("pods", name, names))
        return [pod], ""
    pods = state.pods_of(kind, name)
    if not pods:
        raise NegativeAnswer(answer_empty(f"{word} has no pod"))
    note = f"Found {len(pods)} pods, using pod/{pods[0]}\n" if len(pods) > 1 else ""
    return pods[:1], note


def _lines_of_pod(state: ClusterState, command: KubectlCommand, pod: str) -> list[str]:
    flags = command.flags
    lines = state.log_lines(pod)
    if (container := flags.get("--container")) is not None:
        names = state.containers(pod) | {line.container for line in lines}
        if container not in names:
            raise NegativeAnswer(answer_absent(f"container of pod {pod}", container, names))
        lines = [line for line in lines if line.container == container]
    start_ns, end_ns = _find_run(state, pod, previous="--previous" in flags)
    if "--since" in flags:
        start_ns = max(start_ns, state.now_ns - round(min(flags["--since"], 1e9) * SECOND_NS))
    elif "--since-time" in flags:
        start_ns = max(start_ns, flags["--since-time"])
    lines = [line for line in lines if start_ns <= line.time_ns < end_ns]
    tail = flags.get("--tail", -1 if command.selector is None else _TAIL_OF_SELECTION)
    has_prefix = "--prefix" in flags
    return [
        (f"[pod/{pod}/{line.container}] " if has_prefix else "")
        + f"{stamp(line.time_ns)} "
        + (f"{line.level.upper()} " if line.level else "")
        + line.message
        for line in (lines if tail < 0 else lines[max(0, len(lines) - tail) :])
    ]


def _find_run(state: ClusterState, pod: str, *, previous: bool) -> tuple[int, int]:
    """Return the start and end of the current run of a pod's containers, or of the previous run."""
    restarts, starts_ns = state.runs(pod)
    end_ns = state.now_ns + 1
    if not previous:
        return (starts_ns[-1] if starts_ns else 0), end_ns
    if not restarts:
        raise NegativeAnswer(answer_absent("previous terminated container in pod", pod, []))
    if not starts_ns:
        raise NegativeAnswer(
            answer_not_recorded(f"lines of {pod} before its last restart, which precedes the recording")
        )
    return (starts_ns[-2] if len(starts_ns) > 1 else 0), starts_ns[-1]


def _top(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    kind = canonical_kind(command.arguments[0]) if command.arguments else None
    if kind is None:
        raise CommandError("kubectl top needs pods or nodes")
    if kind != "Pod":
        return answer_not_recorded("the CPU and memory use of nodes")
    order = command.flags.get("--sort-by", "")
    if order not in ("", "cpu", "memory"):
        raise CommandError("--sort-by must be cpu or memory")
    names = command.arguments[1:]
    if command.selector is not None:
        names = [body["metadata"]["name"] for body in choose_objects(state, command, "Pod", names)]
    usages = state.usage(names or None) if names or command.selector is None else []
    if command.selector is None and (missing := set(names) - {usage.pod for usage in usages}):
        return answer_absent("pods", min(missing), state.pod_names())
    if not usages:
        return answer_empty("no pod has samples in the last seconds")
    by_container = "--containers" in command.flags
    if not by_container:
        usages = _usage_by_pod(usages)
    usages.sort(key=lambda usage: (usage.pod, usage.container))
    if order:
        usages.sort(key=lambda usage: -(usage.cores if order == "cpu" else usage.memory_bytes))
    rows = [
        (
            usage.pod,
            *((usage.container,) if by_container else ()),
            cpu_text(usage.cores),
            memory_text(usage.memory_bytes),
        )
        for usage in usages
    ]
    header = ["POD", "NAME"] if by_container else ["NAME"]
    return answer_ok(format_columns(() if "--no-headers" in command.flags else [*header, *USAGE_COLUMNS], rows))


def _usage_by_pod(usages: Sequence[Usage]) -> list[Usage]:
    totals: dict[str, Usage] = {}
    for usage in usages:
        total = totals.get(usage.pod, Usage(usage.pod, "", 0.0, 0.0))
        totals[usage.pod] = total._replace(
            cores=total.cores + usage.cores, memory_bytes=total.memory_bytes + usage.memory_bytes
        )
    return list(totals.values())


def _api_resources(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    rows = [
        (kind.plural, ",".join(kind.short), kind.api_version, str(kind.namespaced).lower(), kind.kind)
        for kind in KINDS
        if kind.kind in (*state.kinds, "Event")
    ]
    note = "\n# recorded kinds only" if state.is_partial else ""
    return answer_ok(format_columns(["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"], rows) + note)


def _config(state: ClusterState, command: KubectlCommand) -> ToolAnswer:
    words, name = command.arguments[:1], state.name
    if words == ["current-context"]:
        return answer_ok(name)
    if words == ["get-contexts"]:
        row = ("*", name, name, "observer", state.namespace)
        return answer_ok(format_columns(["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"], [row]))
    if words == ["view"]:
        return answer_ok(
            f"apiVersion: v1\nkind: Config\ncontexts:\n- context:\n    cluster: {name}\n"
            f"    namespace: {state.namespace}\n    user: observer\n  name: {name}\ncurrent-context: {name}"
        )
    return answer_refused("kubectl config supports only view, current-context and get-contexts")


def _parse_since_time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return round(time.timestamp() * 1e6) * 1000
    except (ValueError, OverflowError):
        raise CommandError("--since-time must be a time such as 2026-01-31T12:00:00Z") from None


_SWITCHES = (
    "all-namespaces show-labels no-headers ignore-not-found previous timestamps all-containers prefix containers watch "
    "watch-only follow show-kind show-managed-fields help recursive minify flatten raw client short namespaced "
    "ignore-errors all-pods show-events sum"
)
_VALUED = (
    "namespace selector container limit-bytes sort-by field-selector verbosity label-columns context cluster "
    "request-timeout chunk-size for types max-log-requests pod-running-timeout api-group verbs revision timeout"
)
_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "output": check_format, "tail": whole_number("--tail", -1), "since": duration_s("--since"),
    "since-time": _parse_since_time,
}  # fmt: skip
_SHORT = {
    "namespace": "n", "all-namespaces": "A", "output": "o", "selector": "l", "watch": "w", "container": "c",
    "previous": "p", "follow": "f", "help": "h", "verbosity": "v", "label-columns": "L", "recursive": "R",
}  # fmt: skip
READ_FLAGS = tuple(
    VerbFlag(f"--{name}", convert, f"-{_SHORT[name]}" if name in _SHORT else "")
    for name, convert in [
        *((name, None) for name in _SWITCHES.split()),
        *((name, str) for name in _VALUED.split()),
        *_CONVERTERS.items(),
    ]
)
"""Flags of all reading verbs, including accepted flags without an effect."""
READ_VERBS: dict[str, Callable[[ClusterState, KubectlCommand], ToolAnswer]] = {
    "get": _get, "describe": _describe, "logs": _logs, "top": _top, "events": _events, "api-resources": _api_resources,
    "config": _config,
}  # fmt: skip
