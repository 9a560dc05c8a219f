"""Extract from a trajectory the services that the agent inspected, its kubectl commands, and its steps as text."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from faultset.agents.runs.record import AgentRun
from faultset.agents.trajectory import Trajectory, TrajectoryStep, text_of
from faultset.core.printable import printable
from faultset.datasets.kubectl.commands import CommandError, Token, tokens

SUBMISSION = "submit"
_MAX_SEARCHED = 200_000
"""Characters of an observation that are searched."""


@dataclass(frozen=True, kw_only=True)
class InspectedServices:
    """The services that one run inspected."""

    calls: Mapping[str, int]
    """Tool -> number of calls, without submissions."""
    requested: frozenset[str]
    """Candidates named in calls, directly or as one of their pods."""
    observed: frozenset[str]
    """Candidates named in observations."""


def find_inspected_services(trajectory: Trajectory, candidates: Sequence[str]) -> InspectedServices:
    """Return the services that the agent inspected.

    Parameters
    ----------
    candidates
        Services of the system. An observation that names all of them, such as an answer of `describe_system`, is
        ignored.
    """
    calls: Counter[str] = Counter()
    requested: set[str] = set()
    observed: set[str] = set()
    pattern = _build_pattern(candidates)
    for step in trajectory.agent_steps:
        for call in step.tool_calls or ():
            if not call.function_name.startswith(SUBMISSION):
                calls[call.function_name] += 1
                requested |= _find_names(json.dumps(call.arguments, ensure_ascii=False), pattern)
        for result in step.observation.results if step.observation else ():
            named = _find_names(text_of(result.content)[:_MAX_SEARCHED], pattern)
            observed |= named if named < {*candidates} else set()
    return InspectedServices(calls=dict(calls), requested=frozenset(requested), observed=frozenset(observed))


def _build_pattern(candidates: Sequence[str]) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in sorted({*candidates}, key=lambda name: (-len(name), name)))
    return re.compile(rf"(?<![\w-])({names or '(?!)'})(?:-[a-z0-9]{{6,10}}-[a-z0-9]{{5}})?(?![\w-])")


def _find_names(text: str, pattern: re.Pattern[str]) -> set[str]:
    return {match[1] for match in pattern.finditer(text)}


CHANGES = frozenset({
    "annotate", "apply", "autoscale", "cordon", "create", "delete", "drain", "edit", "exec", "expose", "label", "patch",
    "replace", "rollout", "run", "scale", "set", "taint", "uncordon", "wait",
})  # fmt: skip
"""kubectl verbs that change a system, act inside it, or wait for it."""
_READ_ONLY = frozenset({("rollout", "history"), ("rollout", "status")})
_SEPARATORS = frozenset({"&&", ";", "||"})
_MAX_COMMANDS = 5000


@dataclass(frozen=True, kw_only=True)
class RecordedCommand:
    """One command of a run.

    Attributes
    ----------
    step
        Number of the step in the trajectory.
    line
        The command without pipes and redirections.
    problem
        Why it cannot be replayed; empty if it can.
    """

    step: int
    line: str
    words: tuple[str, ...] = ()
    problem: str = ""

    @property
    def changes(self) -> bool:
        """Return whether the command changes the system, acts inside it, or waits."""
        rest = list(self.words[1:])
        while rest and rest[0].startswith("-"):
            del rest[: 2 if rest[0] in ("-n", "--namespace", "--context", "--kubeconfig") else 1]
        verb = tuple(rest[:2])
        return self.words[:1] == ("sleep",) or (bool(verb) and verb[0] in CHANGES and verb not in _READ_ONLY)


def recorded_commands(trajectory: Trajectory, namespace: str | None = None) -> list[RecordedCommand]:
    """Return all kubectl commands in the agent's calls, and the waits between them.

    Parameters
    ----------
    namespace
        The application's namespace in the recording, which is removed from commands; other namespaces are kept.
    """
    commands: list[RecordedCommand] = []
    for step in trajectory.agent_steps:
        for call in step.tool_calls or ():
            for value in call.arguments.values():
                if isinstance(value, str) and ("kubectl" in value or value.lstrip().startswith("sleep ")):
                    commands += _parse_commands(step.step_id, value, namespace)
    return commands[:_MAX_COMMANDS]


def _parse_commands(step: int, text: str, namespace: str | None) -> Iterator[RecordedCommand]:
    if "<<" in text:
        yield RecordedCommand(step=step, line=_join_lines(text), problem="it reads a here-document")
        return
    for line in text.replace("\\\n", " ").splitlines():
        try:
            parts = _split_at_separators(tokens(line))
        except CommandError as error:
            if "kubectl" in line:
                yield RecordedCommand(step=step, line=_join_lines(line), problem=str(error))
            continue
        for part in parts:
            words = _remove_namespace(_cut_at_pipe(part), namespace)
            if words[:1] in (["kubectl"], ["sleep"]):
                operators = {token.text for token in part if token.is_operator}
                problem = "its output goes to a file" if not _discards_output(part) else ""
                problem = "it needs a shell" if operators - {"|", ">", ">>", ">&"} else problem
                yield RecordedCommand(step=step, line=_join_words(words), words=tuple(words), problem=problem)
            elif any(token.text == "kubectl" for token in part):
                yield RecordedCommand(
                    step=step, line=_join_words([token.text for token in part]), problem="it needs a shell"
                )


def _split_at_separators(line: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in line:
        if token.is_operator and token.text in _SEPARATORS:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _cut_at_pipe(part: list[Token]) -> list[str]:
    words: list[str] = []
    for token in part:
        if token.is_operator:
            if token.text.startswith(">") and words[-1:] in (["2"], ["1"]):
                words.pop()
            break
        words.append(token.text)
    return words


def _discards_output(part: list[Token]) -> bool:
    targets = [part[position + 1].text for position, token in enumerate(part[:-1]) if token.text.startswith(">")]
    return all(text in ("/dev/null", "1") for text in targets)


def _remove_namespace(words: list[str], namespace: str | None) -> list[str]:
    if namespace is None:
        return words
    result: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*result, word, *rest]
        if word in ("-n", "--namespace") and rest[:1] == [namespace]:
            rest.pop(0)
        elif word not in (f"-n={namespace}", f"-n{namespace}", f"--namespace={namespace}"):
            result.append(word)
    return result


def _join_words(words: list[str]) -> str:
    return " ".join(word if word and not set(word) & set(" \t\n|&;<>()'\"\\`$*?#") else _quote(word) for word in words)


def _quote(word: str) -> str:
    if "'" not in word:
        return f"'{word}'"
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'


def _join_lines(text: str) -> str:
    return " ".join(text.split())[:500]


_MIN_WIDTH = 40


def trajectory_text(trajectory: Trajectory, run: AgentRun | None, *, width: int, length: int | None) -> str:
    """Return a run as text for a terminal.

    Parameters
    ----------
    run
        Record of the run, if available.
    width
        Columns of the terminal.
    length
        Maximum characters per message or result; None for all.
    """
    lines = [*_describe_run(trajectory, run)]
    for step in trajectory.steps:
        lines += ["", *_describe_step(step, length)]
    return "\n".join(_wrap_lines(lines, max(width, _MIN_WIDTH))) + "\n"


def _describe_run(trajectory: Trajectory, run: AgentRun | None) -> Iterator[str]:
    agent = trajectory.agent
    model = f" with {agent.model_name}" if agent.model_name else ""
    yield f"{agent.name} {agent.version}{model}: {len(trajectory.steps)} steps"
    if run is None:
        return
    yield f"{run.format} · {run.episode or 'unnamed problem'} · {run.task}"
    yield f"status: {run.status}{f' ({run.status_reason})' if run.status_reason else ''}"
    yield f"answer: {run.answer_json or 'none'}"
    tokens = f"{run.prompt_tokens or 0:,} prompt and {run.completion_tokens or 0:,} completion tokens"
    usage = "tokens unknown" if run.tokens_source == "none" else f"{tokens} ({run.tokens_source})"
    yield f"{run.tool_calls} calls, {run.tool_errors} errors, {run.repeats} repeats, {usage}"


def _describe_step(step: TrajectoryStep, length: int | None) -> Iterator[str]:
    yield f"── {step.step_id} {step.source}{f' {step.timestamp}' if step.timestamp else ''} ──"
    if step.reasoning_content:
        yield from (f"  ~ {line}" for line in shorten(step.reasoning_content, length).splitlines())
    yield from (f"  {line}" for line in shorten(step.text, length).splitlines())
    for call in step.tool_calls or ():
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        yield f"  > {call.function_name} {shorten(arguments, length)}"
    for result in step.observation.results if step.observation else ():
        yield from (f"  < {line}" for line in shorten(text_of(result.content), length).splitlines())


def shorten(text: str, length: int | None) -> str:
    """Truncate a text and append how many characters are missing."""
    if length is None or len(text) <= length:
        return text
    return f"{text[:length]}\n[{len(text) - length:,} of {len(text):,} characters not shown]"


def _wrap_lines(lines: list[str], width: int) -> Iterator[str]:
    for line in lines:
        shown = printable(line.expandtabs(4))
        indent = shown[: len(shown) - len(shown.lstrip(" <>~"))]
        yield from textwrap.wrap(
            shown, width, subsequent_indent=" " * min(len(indent), 8), drop_whitespace=False, replace_whitespace=False
        ) or [""]
