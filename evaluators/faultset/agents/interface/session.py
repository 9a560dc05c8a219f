"""One attempt of an agent at one recorded episode: its tools, its one answer, and what was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS
from faultset.core.errors import UsageError
from faultset.datasets.kubectl.answers import ToolAnswer, found, invalid, refused
from faultset.datasets.kubectl.printing import stamp
from faultset.datasets.tools.recording import ViewClock
from faultset.datasets.tools.toolset import TOOLS_VERSION, EpisodeTools, tool_of

RecordedTask = Literal["detection", "localization", "diagnosis", "all"]
SESSION_TASKS: tuple[RecordedTask, ...] = get_args(RecordedTask)
"""What can be asked of a recording."""
SessionTask = Literal["detection", "localization", "diagnosis", "all", "mitigation"]
"""What can be asked; mitigation of a live system only."""
_SUBMISSIONS: dict[RecordedTask, str] = {
    "detection": "submit_detection",
    "localization": "submit_localization",
    "diagnosis": "submit_rca",
    "all": "submit_all",
}
_QUESTIONS: dict[RecordedTask, str] = {
    "detection": "Does the system have a fault at this moment or has it had one?",
    "localization": "Which service is the root cause of the trouble, if there is any?",
    "diagnosis": "On which level of the system is the fault, and of which type is it?",
    "all": "Is there a fault; which service is its root cause; on which level of the system is it, and of which type?",
}
_RETRIES = 1
ANSWER_TAKEN = "The answer is taken."
"""What a submission that ends the session is told."""

Fault = Annotated[bool, Field(description="Whether there is a fault.")]
Services = Annotated[
    list[str], Field(max_length=200, description="Root cause services, best first; empty where there is no fault.")
]
Ordered = Annotated[bool, Field(description="Whether the order counts; otherwise all are equally likely.")]
Level = Annotated[str | None, Field(description=f"One of: {', '.join(SYSTEM_LEVELS)}; null where there is no fault.")]
Type = Annotated[str | None, Field(description=f"One of: {', '.join(FAULT_TYPES)}; null where there is no fault.")]


class AgentSession:
    """What an agent may do with an episode, until it has answered.

    Parameters
    ----------
    tools
        Of the episode; the submission of the task is added to them.
    task
        What is asked.

    Attributes
    ----------
    instructions
        The task in words.
    submission
        Name of the tool that ends the attempt.
    answer
        What was submitted, as `faultset.agents.runs.answers` writes answers; None before. A session of task "all" has
        the keys of all three.
    answered_ns
        Moment of the recording at which the answer was given, UTC nanoseconds; None before.
    retries
        Submissions that named what cannot be named, after which the agent could answer again.
    """

    def __init__(self, tools: EpisodeTools, task: RecordedTask = "all") -> None:
        if task not in SESSION_TASKS:
            raise UsageError(f'the task "{task}" is unknown; tasks are {", ".join(SESSION_TASKS)}')
        self._begin(tools, task, _SUBMISSIONS[task])
        self.instructions = task_instructions(task)

    def _begin(self, tools: EpisodeTools, task: SessionTask, submission: str) -> None:
        self.tools = tools
        self.task: SessionTask = task
        self.submission = submission
        self.answer: dict[str, Any] | None = None
        self.answered_ns: int | None = None
        self.retries = 0
        tools.tools[submission] = tool_of(getattr(self, submission))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Services that may be named."""
        return self.tools.recording.context.services

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool; after the answer nothing more is told."""
        if self.answer is not None:
            return refused("the answer has been given")
        return self.tools.call(name, arguments)

    def report(self) -> dict[str, Any]:
        """Return the answer and what was counted, as JSON."""
        tools = self.tools
        problem = "" if self.answer is None else answer_problem(self.answer, self.candidates)
        return {
            "tools_version": TOOLS_VERSION,
            "task": self.task,
            "status": "no_answer" if self.answer is None else "invalid" if problem else "ok",
            "status_reason": problem,
            "answer": self.answer,
            "answered_ns": self.answered_ns,
            "retries": self.retries,
            "tool_calls": sum(tools.calls.values()),
            "calls": dict(tools.calls),
            "statuses": dict(tools.counts),
            "repeats": tools.repeats,
        }

    def submit_detection(self, fault: Fault) -> ToolAnswer:
        """Answer whether there is a fault, and end."""
        return self._done({"fault": fault})

    def submit_localization(self, services: Services, ordered: Ordered = True) -> ToolAnswer:
        """Answer which services are the root cause, and end."""
        return self._unknown(services) or self._done({"services": services, "ordered": ordered})

    def submit_rca(self, system_level: Level, fault_type: Type) -> ToolAnswer:
        """Answer on which level of the system the fault is and of which type, and end."""
        return self._unknown_words(system_level, fault_type) or self._done(_pair(system_level, fault_type))

    def submit_all(
        self, fault: Fault, services: Services, system_level: Level, fault_type: Type, ordered: Ordered = True
    ) -> ToolAnswer:
        """Answer everything at once, and end."""
        problem = self._unknown(services) or self._unknown_words(system_level, fault_type)
        answer = {"fault": fault, "services": services, "ordered": ordered} | _pair(system_level, fault_type)
        return problem or self._done(answer)

    def _done(self, answer: dict[str, Any]) -> ToolAnswer:
        self.answer, self.answered_ns = answer, self.tools.clock.now_ns
        return found(ANSWER_TAKEN)

    def _unknown(self, services: list[str]) -> ToolAnswer | None:
        unknown = [name for name in services if name not in self.candidates]
        if not unknown or self.retries >= _RETRIES:
            return None
        self.retries += 1
        known = ", ".join(self.candidates)
        return invalid(f'"{unknown[0][:60]}" is no candidate; answer once more, with names from: {known}.')

    def _unknown_words(self, level: str | None, fault_type: str | None) -> ToolAnswer | None:
        for word, known in ((level, SYSTEM_LEVELS), (fault_type, FAULT_TYPES)):
            if word is not None and word.strip().lower() not in known and self.retries < _RETRIES:
                self.retries += 1
                return invalid(
                    f'"{word[:60]}" is not a possible answer; answer once more, with one of: {", ".join(known)}.'
                )
        return None


def task_instructions(task: RecordedTask) -> str:
    """Return what an agent is told about a task."""
    return (
        f"You diagnose a recorded system of microservices. {_QUESTIONS[task]} Look at it with the tools; they "
        "only read. The clock stands at the moment at which you are called; wait moves it on, if there is more to "
        'come. "No rows" means that nothing was there, "Not recorded" says nothing about the system. End with one '
        f"call of {_SUBMISSIONS[task]}; a system without a fault is possible."
    )


def problem_text(task: RecordedTask, clock: ViewClock, alarm_ns: int | None = None) -> str:
    """Return the task with the alarm, if there is one, and the time at which the agent is called."""
    alarm = "" if alarm_ns is None else f" An alarm was raised at {stamp(alarm_ns, 'seconds')}; it may be false."
    return f"{task_instructions(task)}{alarm} It is {clock} now."


def answer_problem(answer: Mapping[str, Any], candidates: Sequence[str]) -> str:
    """Return why an answer cannot be scored; empty if it can."""
    services = answer.get("services", ())
    if services and not any(name in candidates for name in services):
        return f"{len(services)} of {len(services)} names are no candidates"
    for key, words in (("system_level", SYSTEM_LEVELS), ("fault_type", FAULT_TYPES)):
        word = answer.get(key)
        if word is not None and word.strip().lower() not in words:
            return f"{key} is none of the allowed words"
    return ""


def _pair(level: str | None, fault_type: str | None) -> dict[str, str | None]:
    return {"system_level": level, "fault_type": fault_type}


Summary = Annotated[str, Field(max_length=4000, description="What was broken, and what you did about it.")]


INSTRUCTIONS = (
    "You operate a live system of microservices in which something is broken. Find the root cause and repair it: "
    "clients must be served again, and every object must be specified as it was while all was healthy, with nothing "
    "missing. The tools show the system up to the present moment; kubectl reads it and changes it, within the "
    "application's namespace only. Change as little as you can, and look whether it helped. End with one call of "
    "submit_mitigation, with which the system is handed back."
)


class MitigationSession(AgentSession):
    """What an agent may do with a live system, until it says that it is done.

    Parameters
    ----------
    tools
        Of the episode that goes on, of which kubectl changes the system.
    """

    def __init__(self, tools: EpisodeTools) -> None:
        self._begin(tools, "mitigation", "submit_mitigation")
        self.instructions = INSTRUCTIONS

    def submit_mitigation(self, summary: Summary = "") -> ToolAnswer:
        """Say that the work is done, and end."""
        return self._done({"summary": summary})
