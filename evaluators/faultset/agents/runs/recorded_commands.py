"""The commands of a recorded run of an agent, taken from its trajectory in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from faultset.agents.trajectories.model import Trajectory
from faultset.datasets.kubectl.commands import CommandError, Token, tokens

CHANGES = frozenset({
    "annotate", "apply", "autoscale", "cordon", "create", "delete", "drain", "edit", "exec", "expose", "label", "patch",
    "replace", "rollout", "run", "scale", "set", "taint", "uncordon", "wait",
})  # fmt: skip
"""Verbs that change a system, act inside it, or wait for it."""
_READING = frozenset({("rollout", "history"), ("rollout", "status")})
_SEPARATORS = frozenset({"&&", ";", "||"})
_MOST = 5000


@dataclass(frozen=True, kw_only=True)
class RecordedCommand:
    """One command of a run.

    Attributes
    ----------
    step
        Number of the step in the trajectory.
    line
        The command alone, without pipes and redirections of errors.
    problem
        Why it cannot be given again; empty when it can.
    """

    step: int
    line: str
    words: tuple[str, ...] = ()
    problem: str = ""

    @property
    def changes(self) -> bool:
        """Whether it changes something, or waits."""
        rest = list(self.words[1:])
        while rest and rest[0].startswith("-"):
            del rest[: 2 if rest[0] in ("-n", "--namespace", "--context", "--kubeconfig") else 1]
        verb = tuple(rest[:2])
        return self.words[:1] == ("sleep",) or (bool(verb) and verb[0] in CHANGES and verb not in _READING)


def recorded_commands(trajectory: Trajectory, namespace: str | None = None) -> list[RecordedCommand]:
    """Return all commands of kubectl, and waits between them, that the agent's calls hold.

    Parameters
    ----------
    namespace
        Name of the application's namespace in the recording; commands that name it lose it, those that name another
        one keep it.
    """
    found: list[RecordedCommand] = []
    for step in trajectory.agent_steps:
        for call in step.tool_calls or ():
            for value in call.arguments.values():
                if isinstance(value, str) and ("kubectl" in value or value.lstrip().startswith("sleep ")):
                    found += _commands(step.step_id, value, namespace)
    return found[:_MOST]


def _commands(step: int, text: str, namespace: str | None) -> Iterator[RecordedCommand]:
    if "<<" in text:
        yield RecordedCommand(step=step, line=_one_line(text), problem="it is fed by a document in the shell")
        return
    for line in text.replace("\\\n", " ").splitlines():
        try:
            parts = _split(tokens(line))
        except CommandError as error:
            if "kubectl" in line:
                yield RecordedCommand(step=step, line=_one_line(line), problem=str(error))
            continue
        for part in parts:
            words = _without_namespace(_before_pipe(part), namespace)
            if words[:1] in (["kubectl"], ["sleep"]):
                operators = {token.text for token in part if token.is_operator}
                problem = "its output goes to a file" if not _to_nowhere(part) else ""
                problem = "it needs a shell" if operators - {"|", ">", ">>", ">&"} else problem
                yield RecordedCommand(step=step, line=_joined(words), words=tuple(words), problem=problem)
            elif any(token.text == "kubectl" for token in part):
                yield RecordedCommand(
                    step=step, line=_joined([token.text for token in part]), problem="it needs a shell"
                )


def _split(found: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in found:
        if token.is_operator and token.text in _SEPARATORS:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _before_pipe(part: list[Token]) -> list[str]:
    words: list[str] = []
    for place, token in enumerate(part):
        if token.is_operator:
            if token.text.startswith(">") and words[-1:] in (["2"], ["1"]):
                words.pop()
            break
        if token.text in ("1", "2") and place + 1 < len(part) and part[place + 1].is_operator:
            break
        words.append(token.text)
    return words


def _to_nowhere(part: list[Token]) -> bool:
    after = [part[place + 1].text for place, token in enumerate(part[:-1]) if token.text.startswith(">")]
    return all(text in ("/dev/null", "1") for text in after)


def _without_namespace(words: list[str], namespace: str | None) -> list[str]:
    if namespace is None:
        return words
    kept: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return [*kept, word, *waiting]
        if word in ("-n", "--namespace") and waiting[:1] == [namespace]:
            waiting.pop(0)
        elif word not in (f"-n={namespace}", f"-n{namespace}", f"--namespace={namespace}"):
            kept.append(word)
    return kept


def _joined(words: list[str]) -> str:
    return " ".join(word if word and not set(word) & set(" \t\n|&;<>()'\"\\`$*?#") else _quoted(word) for word in words)


def _quoted(word: str) -> str:
    if "'" not in word:
        return f"'{word}'"
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
