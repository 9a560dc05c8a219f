"""Print objects like `kubectl get -o` in all formats except tables, and like `kubectl describe`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from faultset.datasets.kubectl.commands import CommandError
from faultset.datasets.kubectl.kinds import full_name
from faultset.datasets.kubectl.object_tables import Object, endpoint_texts, is_terminating, pairs
from faultset.datasets.kubectl.printing import UNRECORDED, field_line, format_columns

_PIECE = re.compile(r"\{([^{}]*)\}|([^{}]+)")
_STEP = re.compile(
    r"""\.\.?(?P<key>[A-Za-z_](?:[\w-]|\\.)*)|\.?\[\s*(?:'(?P<quoted>[^']*)'|"(?P<double>[^"]*)")\s*\]"""
    r"""|(?P<all>\.?\[\*\]|\.\*)|\[(?P<index>-?\d{1,6})\]"""
    r"""|\[\?\(\s*@(?P<path>[\w.\-\[\]]+)\s*(?P<sign>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]"""
)
_MAX_VALUES = 100_000
_MAX_TEMPLATE_LENGTH = 4000

Piece = tuple[str | None, str | None]
"""An expression in braces, or text between expressions."""


class MissingFieldError(Exception):
    """A path of a template matches no field."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def select(value: Any, path: str) -> list[Any]:
    """Return all values that match a path.

    >>> select({"items": [{"name": "a"}, {"name": "b"}]}, ".items[*].name")
    ['a', 'b']
    """
    if len(path) > _MAX_TEMPLATE_LENGTH:
        raise CommandError(f"a path must have at most {_MAX_TEMPLATE_LENGTH:,} characters, but has {len(path):,}")
    text = path.strip().removeprefix("$").removeprefix("@")
    if text and text[0] not in ".[":
        text = "." + text
    values = [value]
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            if text[position:] == ".":
                break
            raise CommandError(f"the path {path[:80]!r} cannot be parsed")
        values = [inner for outer in values for inner in _follow(outer, step)][:_MAX_VALUES]
        position = step.end()
    return values


def _follow(value: Any, step: re.Match[str]) -> Iterator[Any]:
    """Yield the values that a step of a path selects."""
    groups = step.groupdict()
    key = next((groups[name] for name in ("key", "quoted", "double") if groups[name] is not None), None)
    if key is not None:
        key = key.replace("\\.", ".")
        if step[0].startswith(".."):
            yield from _search(value, key)
        elif isinstance(value, dict) and key in value:
            yield value[key]
    elif groups["all"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif groups["index"] is not None:
        index = int(groups["index"])
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]
    elif isinstance(value, list):
        operand = groups["value"].strip("\"'")
        for item in value:
            texts = [text_of(field) for field in select(item, groups["path"])]
            if (operand in texts) == (groups["sign"] == "=="):
                yield item


def _search(value: Any, key: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for inner in value.values():
            yield from _search(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _search(inner, key)


def text_of(value: Any) -> str:
    """Return a value as kubectl prints it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def render_template(template: str, value: Any, *, strict: bool = False) -> str:
    """Return a template with the values of its paths; missing fields are empty.

    >>> render_template('{range .items[*]}{.name}{"\\\\n"}{end}', {"items": [{"name": "a"}, {"name": "b"}]})
    'a\\nb\\n'
    """
    if len(template) > _MAX_TEMPLATE_LENGTH:
        raise CommandError(
            f"a template must have at most {_MAX_TEMPLATE_LENGTH:,} characters, but has {len(template):,}"
        )
    if "{" not in template:
        template = "{" + template + "}"
    if _PIECE.sub("", template):
        raise CommandError(f"the template {template[:80]!r} has an unmatched brace; close or remove it")
    pieces = [(match[1], match[2]) for match in _PIECE.finditer(template)]
    text, rest = _render(pieces, value, strict)
    if rest:
        raise CommandError("the template has an {end} without a {range}; remove it")
    return text


def _render(pieces: list[Piece], value: Any, strict: bool) -> tuple[str, list[Piece]]:
    out: list[str] = []
    while pieces:
        (expression, literal), *pieces = pieces
        if expression is None:
            out.append((literal or "").replace("\\n", "\n").replace("\\t", "\t"))
            continue
        expression = expression.strip()
        if expression == "end":
            return "".join(out), [("end", None), *pieces]
        if expression.startswith("range"):
            items = select(value, expression.removeprefix("range"))
            if not items and strict:
                raise MissingFieldError(expression)
            _, rest = _render(pieces, None, strict=False)
            for item in items:
                text, rest = _render(pieces, item, strict)
                out.append(text)
            if rest[:1] != [("end", None)]:
                raise CommandError("the template has a {range} without an {end}; add it")
            pieces = rest[1:]
        elif expression[:1] in "\"'":
            out.append(expression.strip("\"'").replace("\\n", "\n").replace("\\t", "\t"))
        else:
            values = select(value, expression)
            if not values and strict:
                raise MissingFieldError(expression)
            out.append(" ".join(map(text_of, values)))
    return "".join(out), []


_FORMATS = ("wide", "yaml", "json", "name", "jsonpath=", "jsonpath-as-json=", "custom-columns=")
"""Values of `-o`; a template follows the equals sign."""


def check_format(output: str) -> str:
    """Return the value of `-o`, which may be empty; raise CommandError for an unknown format."""
    form, equals, _ = output.partition("=")
    if output and form + equals not in _FORMATS:
        raise CommandError(f'the output format must be one of {", ".join(_FORMATS)}, got "{output[:40]}"')
    return output


def yaml_text(value: Any) -> str:
    """Return a value as YAML with sorted keys and multi-line texts as blocks."""
    import yaml

    class Blocks(yaml.SafeDumper):
        pass

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Blocks.add_representer(str, represent)
    return yaml.dump(value, Dumper=Blocks, sort_keys=True).rstrip()


def document(objects: Sequence[Mapping[str, Any]], output: str, *, single: bool, unknown: str | None = None) -> str:
    """Return objects in a format of `kubectl get`; `single` prints one object without a List around it.

    If `unknown` is given, missing fields raise MissingFieldError in templates and are `unknown` in custom columns.
    Otherwise they are empty or `<none>`, as in kubectl.
    """
    form, _, template = check_format(output).partition("=")
    if form == "name":
        return "\n".join(full_name(body["kind"], body["metadata"]["name"]) for body in objects)
    if form == "custom-columns":
        return _custom_columns(objects, template, "<none>" if unknown is None else unknown)
    value: Any = objects[0] if single and objects else _list_of(objects)
    if form == "json":
        return json.dumps(value, indent=4, sort_keys=True)
    if form == "yaml":
        return yaml_text(value)
    if form == "jsonpath":
        return render_template(template, value, strict=unknown is not None)
    return json.dumps(select(value, template.strip("{}")), indent=4)


def _list_of(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


def _custom_columns(objects: Sequence[Mapping[str, Any]], template: str, unknown: str) -> str:
    columns = [column.partition(":") for column in template.split(",")]
    if not all(name and path for name, _, path in columns):
        raise CommandError("custom-columns needs NAME:PATH, such as NAME:.metadata.name, or several joined by commas")
    rows = [
        [",".join(map(text_of, select(body, path.strip("{}")))) or unknown for _, _, path in columns]
        for body in objects
    ]
    return format_columns([name for name, _, _ in columns], rows)


def description(body: Object, *, age: str | None = None) -> list[str]:
    """Return the description of an object as lines, without its events."""
    lines = _metadata(body["metadata"])
    if age is not None:
        lines.append(field_line("Age", age))
    return lines + _SECTIONS.get(body["kind"], _fields)(body)


def _metadata(metadata: Mapping[str, Any]) -> list[str]:
    lines = [field_line("Name", metadata["name"])]
    if metadata.get("namespace"):
        lines.append(field_line("Namespace", metadata["namespace"]))
    return lines + [
        field_line(key.capitalize(), pairs(metadata[key])) for key in ("labels", "annotations") if key in metadata
    ]


def _fields(body: Object) -> list[str]:
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return yaml_text(content).splitlines()


def _pod(pod: Object) -> list[str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    lines = [
        field_line("Node", spec.get("nodeName") or "<none>"),
        field_line("Status", "Terminating" if is_terminating(pod) else status.get("phase")),
    ]
    if status.get("podIP"):
        lines.append(field_line("IP", status["podIP"]))
    if status.get("reason"):
        lines.append(field_line("Reason", status["reason"]))
    statuses = {container["name"]: container for container in status.get("containerStatuses") or []}
    lines.append("Containers:")
    for container in spec.get("containers") or []:
        lines.append(f"  {container['name']}:")
        lines += _container(container)
        if container["name"] in statuses:
            lines += _container_status(statuses[container["name"]])
    lines += _volumes(spec)
    conditions = [(condition["type"], condition["status"]) for condition in status.get("conditions") or []]
    return [*lines, "Conditions:", *_indent(format_columns(["Type", "Status"], conditions), "  ")]


def _container_status(status: Mapping[str, Any]) -> list[str]:
    lines = []
    for label, state in (("State", status.get("state")), ("Last State", status.get("lastState"))):
        for word, detail in (state or {}).items():
            lines.append(f"    {label + ':':<16}{word.capitalize()}")
            if detail.get("reason"):
                lines.append(f"      Reason:       {detail['reason']}")
            if detail.get("message"):
                lines.append(f"      Message:      {detail['message']}")
            if detail.get("exitCode") is not None:
                lines.append(f"      Exit Code:    {detail['exitCode']}")
    return [
        *lines,
        f"    Ready:          {status.get('ready', False)}",
        f"    Restart Count:  {status.get('restartCount', 0)}",
    ]


def _container(container: Mapping[str, Any]) -> list[str]:
    lines = [f"    Image:{'':<10}{container.get('image')}"]
    lines += [
        f"    {name.capitalize() + ':':<16}{' '.join(container[name])}"
        for name in ("command", "args")
        if container.get(name)
    ]
    if container.get("ports"):
        ports = ", ".join(f"{port.get('containerPort')}/{port.get('protocol', 'TCP')}" for port in container["ports"])
        lines.append(f"    Ports:          {ports}")
    for name in ("limits", "requests"):
        values = (container.get("resources") or {}).get(name)
        if values:
            lines.append(f"    {name.capitalize()}:")
            lines += [f"      {key + ':':<9}{value}" for key, value in sorted(values.items())]
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            label = f"{name.removesuffix('Probe').capitalize()}:"
            lines.append(f"    {label:<16}{text_of(container[name])}")
    if "env" in container:
        lines.append("    Environment:")
        for variable in sorted(container["env"] or [], key=lambda variable: variable["name"]):
            source = variable.get("valueFrom")
            lines.append(
                f"      {variable['name']}:  {variable.get('value', '') if source is None else text_of(source)}"
            )
    if container.get("volumeMounts"):
        lines.append("    Mounts:")
        lines += [f"      {mount['mountPath']} from {mount['name']}" for mount in container["volumeMounts"]]
    return lines


def _volumes(spec: Mapping[str, Any]) -> list[str]:
    if not spec.get("volumes"):
        return []
    sources = [{key: value for key, value in volume.items() if key != "name"} for volume in spec["volumes"]]
    names = [volume["name"] for volume in spec["volumes"]]
    return ["Volumes:", *(f"  {name}:  {text_of(source)}" for name, source in zip(names, sources, strict=True))]


def _workload(workload: Object) -> list[str]:
    spec, status = workload["spec"], workload.get("status") or {}
    lines = [] if "selector" not in spec else [field_line("Selector", pairs(spec["selector"].get("matchLabels")))]
    lines.append(
        field_line(
            "Replicas",
            f"{spec.get('replicas', 1)} desired | {status.get('availableReplicas', 0)} available | "
            f"{status.get('readyReplicas', 0)} ready",
        )
    )
    template = spec["template"]["spec"]
    lines += ["Pod Template:", "  Containers:", *_containers(template), *_indent("\n".join(_volumes(template)), "  ")]
    if template.get("serviceAccountName"):
        lines.append(f"  Service Account:  {template['serviceAccountName']}")
    return [*lines, f"  Node-Selectors:  {pairs(template.get('nodeSelector'))}"]


def _containers(template: Mapping[str, Any]) -> list[str]:
    lines = []
    for container in template.get("containers") or []:
        if "name" in container:
            lines.append(f"   {container['name']}:")
        lines += _container(container)
    return lines


def _replica_set(workload: Object) -> list[str]:
    spec, status = workload["spec"], workload.get("status") or {}
    replicas = f"{status.get('readyReplicas', 0)} ready / {spec.get('replicas', 1)} desired"
    return [field_line("Replicas", replicas), *_containers(spec["template"]["spec"])]


def _service(service: Object) -> list[str]:
    spec = service["spec"]
    lines = [field_line("Selector", pairs(spec.get("selector")))]
    lines += [field_line(name, spec[key]) for name, key in (("Type", "type"), ("IP", "clusterIP")) if key in spec]
    for port in spec.get("ports") or []:
        lines += [field_line("Port", port["port"]), field_line("TargetPort", port.get("targetPort", port["port"]))]
    return lines


def _endpoints(endpoints: Object) -> list[str]:
    subsets = endpoints.get("subsets") or []
    ports = [str(port["port"]) for subset in subsets for port in subset.get("ports") or []]
    return [
        "Subsets:",
        f"  Addresses:          {','.join(endpoint_texts(endpoints)) or '<none>'}",
        f"  NotReadyAddresses:  {sum(len(subset.get('notReadyAddresses') or []) for subset in subsets)}",
        f"  Ports:              {', '.join(ports) or '<none>'}",
    ]


def _claim(claim: Object) -> list[str]:
    status = claim.get("status") or {}
    return [field_line("Status", status.get("phase")), field_line("Volume", claim["spec"].get("volumeName") or "")]


def _volume(volume: Object) -> list[str]:
    status, claim = volume.get("status") or {}, volume["spec"].get("claimRef") or {}
    return [field_line("Status", status.get("phase")), field_line("Claim", claim.get("name") or "")]


def _config_map(config_map: Object) -> list[str]:
    if "data" not in config_map:
        return [field_line("Data", UNRECORDED)]
    lines = ["", "Data", "===="]
    for key, text in sorted((config_map["data"] or {}).items()):
        lines += [f"{key}:", "----", str(text), ""]
    return lines


def _indent(text: str, margin: str) -> list[str]:
    return [margin + line for line in text.splitlines()]


_SECTIONS: dict[str, Callable[[Object], list[str]]] = {
    "Pod": _pod, "Deployment": _workload, "StatefulSet": _workload, "ReplicaSet": _replica_set, "Service": _service,
    "Endpoints": _endpoints, "PersistentVolumeClaim": _claim, "PersistentVolume": _volume, "ConfigMap": _config_map,
}  # fmt: skip
