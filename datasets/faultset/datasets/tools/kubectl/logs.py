"""`kubectl logs`: lines of pods, split where their containers began again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from faultset.core.times import parse_duration
from faultset.datasets.kubectl.errors import CommandError
from faultset.datasets.tools.clock import stamp
from faultset.datasets.tools.kubectl.command_line import KubectlCommand
from faultset.datasets.tools.kubectl.selection import NegativeAnswer, check_namespace, chosen, split_target
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, absent, empty, found, not_recorded, refused

if TYPE_CHECKING:
    import pandas as pd

_TAIL_OF_SELECTION = 10
MOST_LINES = 2000


def logs(recording: Recording, command: KubectlCommand) -> ToolAnswer:
    """Answer `kubectl logs`."""
    if command.flag("--follow"):
        return refused("following lines is interactive; ask again after a wait")
    check_namespace(recording, command)
    if not recording.has("logs"):
        return not_recorded("this recording has no log lines")
    pods, note = _pods(recording, command)
    lines = recording.frame("logs")
    parts = []
    for pod in pods:
        part = lines[lines["pod"] == pod]
        part = _of_container(recording, command, pod, part)
        parts.append(_since(recording, command, _of_run(recording, command, pod, part)))
    default = _TAIL_OF_SELECTION if "--selector" in command.flags else -1
    tail = _whole(command.flags.get("--tail", str(default)), "--tail")
    text = [line for part in parts for line in _texts(command, part if tail < 0 else part.tail(tail))]
    if not text:
        return empty(f"no log line of {', '.join(pods)} in that part of the recording")
    cut = len(text) - MOST_LINES
    if cut > 0:
        note += f"# {cut} earlier lines are left out; ask with --tail, --since or grep\n" if not command.filters else ""
        text = text if command.filters else text[cut:]
    return found(note + "\n".join(text))


def _pods(recording: Recording, command: KubectlCommand) -> tuple[list[str], str]:
    if "--selector" in command.flags:
        pods = [one.name for one in chosen(recording, command, "Pod", [])]
        if not pods:
            raise NegativeAnswer(empty("no pod has these labels"))
        return pods, ""
    names = [argument for argument in command.arguments if argument != "--"]
    if not names:
        raise CommandError("kubectl logs needs a pod, as in kubectl logs POD or kubectl logs deploy/NAME")
    name = names[0]
    container = names[1] if len(names) > 1 else None
    if container is not None:
        command.flags.setdefault("--container", container)
    known = recording.objects("Pod") if recording.has("objects") else dict.fromkeys(recording.frame("logs")["pod"])
    if "/" not in name:
        if name not in known:
            raise NegativeAnswer(absent("pods", name, known))
        return [name], ""
    command.arguments = [name]
    kinds, named = split_target(recording, command)
    if kinds == ["Pod"]:
        if named[0][1] not in known:
            raise NegativeAnswer(absent("pods", named[0][1], known))
        return [named[0][1]], ""
    owner = chosen(recording, KubectlCommand(verb="get"), kinds[0], [named[0][1]])[0].record["service"]
    pods = [one for one, record in recording.object_records("Pod").items() if record["service"] == owner]
    if not pods:
        raise NegativeAnswer(empty(f"{name} has no pod"))
    note = f"Found {len(pods)} pods, using pod/{pods[0]}\n" if len(pods) > 1 else ""
    return pods[:1], note


def _of_container(recording: Recording, command: KubectlCommand, pod: str, lines: pd.DataFrame) -> pd.DataFrame:
    container = command.flags.get("--container")
    if container is None:
        return lines
    state = recording.objects("Pod").get(pod, {})
    known = {one["name"] for one in state.get("containers", [])} | set(lines["container"])
    if container not in known:
        raise NegativeAnswer(absent(f"container of pod {pod}", container, known))
    return lines[lines["container"] == container]


def _of_run(recording: Recording, command: KubectlCommand, pod: str, lines: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the present run of a pod's containers, or with `--previous` of the one before it."""
    history = recording.history("Pod", pod)
    starts, count = [], 0
    for i, change in enumerate(history):
        now = _restarts(change["state"])
        if i and now > count:
            starts.append(change["time_ns"])
        count = now
    times = lines["time"].astype("int64")
    if command.flag("--previous"):
        if not count:
            raise NegativeAnswer(absent("previous terminated container in pod", pod, []))
        if not starts:
            raise NegativeAnswer(
                not_recorded(f"lines of {pod} from before its last restart, which came before the recording")
            )
        begin = starts[-2] if len(starts) > 1 else 0
        return lines[(times >= begin) & (times < starts[-1])]
    return lines[times >= starts[-1]] if starts else lines


def _restarts(state: dict[str, Any]) -> int:
    return sum(one["restartCount"] for one in state.get("containers", []))


def _since(recording: Recording, command: KubectlCommand, lines: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    if "--since" in command.flags:
        text = command.flags["--since"]
        try:
            seconds = parse_duration(text)
        except ValueError:
            raise CommandError(f"--since takes a duration such as 5m or 30s, not {text[:40]!r}") from None
        return lines[lines["time"].astype("int64") >= recording.clock.since_ns(seconds)]
    if "--since-time" in command.flags:
        try:
            since = pd.Timestamp(command.flags["--since-time"])
            since = since.tz_localize("UTC") if since.tzinfo is None else since
            return lines[lines["time"] >= since]
        except (ValueError, TypeError, OverflowError):
            raise CommandError("--since-time takes an instant such as 2026-01-31T12:00:00Z") from None
    return lines


def _texts(command: KubectlCommand, lines: pd.DataFrame) -> list[str]:
    prefixed = command.flag("--prefix")
    return [
        (f"[pod/{pod}/{container}] " if prefixed else "")
        + f"{stamp(time.value)} "
        + (f"{level.upper()} " if isinstance(level, str) else "")
        + message
        for time, pod, container, level, message in zip(
            lines["time"], lines["pod"], lines["container"], lines["level"], lines["message"], strict=True
        )
    ]


def _whole(text: str, flag: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
        raise CommandError(f"{flag} takes a whole number, not {text[:40]!r}")
    return int(text)
