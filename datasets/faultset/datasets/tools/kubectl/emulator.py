"""One entry for a kubectl command line: parse, answer, filter. It never starts a process."""

from __future__ import annotations

from collections.abc import Callable

from faultset.datasets.kubectl.errors import CommandError, ShellSyntaxError
from faultset.datasets.kubectl.kinds import KINDS
from faultset.datasets.kubectl.tables import in_columns
from faultset.datasets.tools.kubectl.command_line import KubectlCommand, parsed_command
from faultset.datasets.tools.kubectl.describing import describe
from faultset.datasets.tools.kubectl.event_lists import event_list
from faultset.datasets.tools.kubectl.filters import filtered
from faultset.datasets.tools.kubectl.listing import get
from faultset.datasets.tools.kubectl.logs import logs
from faultset.datasets.tools.kubectl.selection import NegativeAnswer, check_namespace, chosen, split_target
from faultset.datasets.tools.kubectl.usage import top
from faultset.datasets.tools.recording import RECORDED_KINDS, Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, invalid, not_recorded, refused

_WRITES = frozenset({
    "apply", "create", "delete", "edit", "patch", "replace", "scale", "set", "label", "annotate", "expose", "run",
    "autoscale", "cordon", "uncordon", "drain", "taint", "certificate",
})  # fmt: skip
_INTERACTIVE = frozenset({"exec", "cp", "port-forward", "proxy", "attach", "debug"})
_UNRECORDED = frozenset(
    {"version", "cluster-info", "explain", "auth", "api-versions", "diff", "wait", "options", "plugin"}
)
_ROLLOUT_WRITES = frozenset({"restart", "undo", "pause", "resume"})


def kubectl(recording: Recording, text: str) -> ToolAnswer:
    """Answer a command line over a recording.

    Parameters
    ----------
    recording
        The view up to now.
    text
        A kubectl command, with or without the word itself, and filters behind pipes.
    """
    try:
        command = _command(text)
        answer = _answered(recording, command)
        if answer.status != "ok" or not command.filters:
            return answer
        left = filtered(answer.text, command.filters)
    except NegativeAnswer as negative:
        return negative.observation
    except ShellSyntaxError as error:
        return refused(str(error))
    except CommandError as error:
        return invalid(f"{error}.")
    return found(left) if left.strip() else empty("no line passes the filters")


def _command(text: str) -> KubectlCommand:
    # Whatever follows these verbs need not be understood to be declined.
    words = text.strip().removeprefix("kubectl").split()
    verb = next((word for word in words if word in _WRITES | _INTERACTIVE), None)
    if verb is not None and text.strip().startswith("kubectl") and (words[0] == verb or words[0].startswith("-")):
        return KubectlCommand(verb=verb)
    return parsed_command(text)


def _answered(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    if command.verb in _WRITES:
        return refused(f"kubectl {command.verb} changes the system, and this is a recording of it")
    if command.verb in _INTERACTIVE:
        return refused(f"kubectl {command.verb} acts inside the system, and this is a recording of it")
    if command.verb in _UNRECORDED:
        return not_recorded(f"what kubectl {command.verb} asks for")
    if command.verb not in _READS:
        known = ", ".join(_READS)
        raise CommandError(f'the verb "{command.verb[:40]}" is not known here; known are {known}')
    return _READS[command.verb](recording, command)


def _api_resources(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    rows = [
        (kind.plural, ",".join(kind.short), kind.api_version, str(kind.namespaced).lower(), kind.kind)
        for kind in KINDS
        if kind.kind in (*RECORDED_KINDS, "Event")
    ]
    return found(
        in_columns(["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"], rows) + "\n# recorded kinds only"
    )


def _config(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    asked = command.arguments[0] if command.arguments else ""
    if asked == "current-context":
        return found("recording")
    if asked == "get-contexts":
        row = ("*", "recording", "recording", "observer", recording.namespace)
        return found(in_columns(["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"], [row]))
    if asked == "view":
        return found(
            "apiVersion: v1\nkind: Config\ncontexts:\n- context:\n    cluster: recording\n"
            f"    namespace: {recording.namespace}\n    user: observer\n  name: recording\ncurrent-context: recording"
        )
    return refused("kubectl config only shows here: view, current-context, get-contexts")


def _rollout(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    asked = command.arguments[0] if command.arguments else ""
    if asked in _ROLLOUT_WRITES:
        return refused(f"kubectl rollout {asked} changes the system, and this is a recording of it")
    if asked != "status":
        return not_recorded("the history of rollouts; replicasets and events show what is left of them")
    check_namespace(recording, command)
    command.arguments = command.arguments[1:]
    kinds, named = split_target(recording, command)
    if kinds != ["Deployment"] or not named:
        raise CommandError("kubectl rollout status needs a deployment")
    lines = []
    for one in chosen(recording, command, "Deployment", [name for _, name in named]):
        state = one.record["state"]
        wanted, available = state.get("replicas") or 0, state.get("availableReplicas") or 0
        done = f'deployment "{one.name}" successfully rolled out'
        waits = (
            f'Waiting for deployment "{one.name}" rollout to finish: '
            f"{available} of {wanted} updated replicas are available..."
        )
        lines.append(done if available >= wanted else waits)
    return found("\n".join(lines))


def _help(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    return found("kubectl over a recording; it reads only.\nverbs: " + ", ".join(_READS))


_READS: dict[str, Callable[[Recording, KubectlCommand], ToolAnswer]] = {
    "get": get, "describe": describe, "logs": logs, "top": top, "events": event_list, "rollout": _rollout,
    "api-resources": _api_resources, "config": _config, "help": _help,
}  # fmt: skip
