"""The session of an agent on one episode: its tools, its single answer, usage counts, and how an alarm is worded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import pyarrow.compute as pc
from pydantic import Field

from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS
from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS, rfc3339
from faultset.datasets.kubectl.printing import ToolAnswer, answer_invalid, answer_ok, answer_refused
from faultset.datasets.tools.recording import ViewClock
from faultset.datasets.tools.toolset import TOOLS_VERSION, EpisodeTools, build_tool
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


RecordedTask = Literal["detection", "localization", "diagnosis", "all"]
SESSION_TASKS: tuple[RecordedTask, ...] = get_args(RecordedTask)
"""Tasks on a recorded episode."""
SessionTask = Literal["detection", "localization", "diagnosis", "all", "mitigation"]
"""All tasks; mitigation needs a live system."""
_SUBMISSIONS: dict[RecordedTask, str] = {
    "detection": "submit_detection",
    "localization": "submit_localization",
    "diagnosis": "submit_rca",
    "all": "submit_all",
}
_QUESTIONS: dict[RecordedTask, str] = {
    "detection": "Does the system have a fault now, or did it have one before?",
    "localization": "Which service is the root cause of the problem, if there is one?",
    "diagnosis": "What are the system level and the type of the fault?",
    "all": "Is there a fault, which service is its root cause, and what are its system level and type?",
}
_RETRIES = 1
ANSWER_ACCEPTED = "The answer is accepted."
"""Reply to a submission that ends the session."""

Fault = Annotated[bool, Field(description="Whether there is a fault.")]
Services = Annotated[
    list[str], Field(max_length=200, description="Root cause services, best first; empty without a fault.")
]
Ordered = Annotated[bool, Field(description="Whether the order matters; otherwise all are equally likely.")]
Level = Annotated[str | None, Field(description=f"One of: {', '.join(SYSTEM_LEVELS)}; null without a fault.")]
Type = Annotated[str | None, Field(description=f"One of: {', '.join(FAULT_TYPES)}; null without a fault.")]


class AgentSession:
    """The actions of an agent on an episode, until it has answered.

    Parameters
    ----------
    tools
        Tools of the episode; the submission of the task is added to them.
    task
        The task.
    situation
        Sentences about the alarm and the time; see `describe_situation`.

    Attributes
    ----------
    instructions
        Instructions for the agent, with the situation.
    submission
        Name of the tool that ends the session.
    answer
        The submitted answer, in the format of `faultset.agents.runs.answers`; None before the submission. With task
        "all" it has the keys of all three tasks.
    answered_ns
        Time of the recording at the submission, UTC nanoseconds; None before it.
    retries
        Number of submissions that were rejected because of invalid names.
    """

    situation = ""

    def __init__(self, tools: EpisodeTools, task: RecordedTask = "all", situation: str = "") -> None:
        if task not in SESSION_TASKS:
            raise UsageError(f'the task must be one of {", ".join(SESSION_TASKS)}, got "{task}"; choose one of them')
        self._begin(tools, task, _SUBMISSIONS[task])
        self.situation = situation
        self.instructions = f"{task_instructions(task)} {situation}".rstrip()

    def _begin(self, tools: EpisodeTools, task: SessionTask, submission: str) -> None:
        self.tools = tools
        self.task: SessionTask = task
        self.submission = submission
        self.answer: dict[str, Any] | None = None
        self.answered_ns: int | None = None
        self.retries = 0
        tools.tools[submission] = build_tool(getattr(self, submission))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Return the services that an answer may name."""
        return self.tools.recording.context.services

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool; calls after the answer are refused."""
        if self.answer is not None:
            return answer_refused("the session has ended with the answer")
        return self.tools.call(name, arguments)

    def report(self) -> dict[str, Any]:
        """Return the answer and usage counts, ready for JSON."""
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
        """Submit whether there is a fault, and end the session."""
        return self._finish({"fault": fault})

    def submit_localization(self, services: Services, ordered: Ordered = True) -> ToolAnswer:
        """Submit the root cause services, and end the session."""
        return self._reject_unknown_services(services) or self._finish({"services": services, "ordered": ordered})

    def submit_rca(self, system_level: Level, fault_type: Type) -> ToolAnswer:
        """Submit the system level and the type of the fault, and end the session."""
        return self._reject_unknown_words(system_level, fault_type) or self._finish(
            _pair_level_and_type(system_level, fault_type)
        )

    def submit_all(
        self, fault: Fault, services: Services, system_level: Level, fault_type: Type, ordered: Ordered = True
    ) -> ToolAnswer:
        """Submit the complete answer, and end the session."""
        problem = self._reject_unknown_services(services) or self._reject_unknown_words(system_level, fault_type)
        answer = {"fault": fault, "services": services, "ordered": ordered} | _pair_level_and_type(
            system_level, fault_type
        )
        return problem or self._finish(answer)

    def _finish(self, answer: dict[str, Any]) -> ToolAnswer:
        self.answer, self.answered_ns = answer, self.tools.clock.now_ns
        return answer_ok(ANSWER_ACCEPTED)

    def _reject_unknown_services(self, services: list[str]) -> ToolAnswer | None:
        unknown = [name for name in services if name not in self.candidates]
        if not unknown or self.retries >= _RETRIES:
            return None
        self.retries += 1
        names = ", ".join(self.candidates)
        return answer_invalid(f'"{unknown[0][:60]}" is not a candidate; answer again with names from: {names}.')

    def _reject_unknown_words(self, level: str | None, fault_type: str | None) -> ToolAnswer | None:
        for word, allowed in ((level, SYSTEM_LEVELS), (fault_type, FAULT_TYPES)):
            if word is not None and word.strip().lower() not in allowed and self.retries < _RETRIES:
                self.retries += 1
                return answer_invalid(f'"{word[:60]}" is not allowed; answer again with one of: {", ".join(allowed)}.')
        return None


def task_instructions(task: RecordedTask) -> str:
    """Return the instructions for a task."""
    return (
        f"You diagnose a recorded microservice system. {_QUESTIONS[task]} Inspect it with the read-only tools. The "
        "clock is paused at the time at which you were called; wait advances it if the recording continues. "
        '"No rows" means that there was nothing. "Not recorded" says nothing about the system. The system may be '
        f"healthy. End with one call of {_SUBMISSIONS[task]}."
    )


def describe_situation(clock: ViewClock, alarm_ns: int | None = None, complaint: str | None = None) -> str:
    """Return sentences about the alarm or the complaint, if any, and the current time.

    Parameters
    ----------
    complaint
        Text of a user instead of the alarm; see `compose_complaint`.
    """
    opening = ""
    if complaint:
        opening = f'A user complains: "{complaint}". The complaint may be wrong. '
    elif alarm_ns is not None:
        opening = f"An alarm was raised at {rfc3339(alarm_ns)}; it may be false. "
    return f"{opening}It is {clock} now."


def answer_problem(answer: Mapping[str, Any], candidates: Sequence[str]) -> str:
    """Return why an answer cannot be scored; empty if it can."""
    services = answer.get("services", ())
    if services and not any(name in candidates for name in services):
        return "no service in the answer is a candidate"
    for key, words in (("system_level", SYSTEM_LEVELS), ("fault_type", FAULT_TYPES)):
        word = answer.get(key)
        if word is not None and word.strip().lower() not in words:
            return f"{key} is not an allowed value"
    return ""


def _pair_level_and_type(level: str | None, fault_type: str | None) -> dict[str, str | None]:
    return {"system_level": level, "fault_type": fault_type}


Summary = Annotated[str, Field(max_length=4000, description="The root cause, and what you changed.")]


INSTRUCTIONS = (
    "You operate a live microservice system with a fault. Find the root cause and repair it: clients must be served "
    "again, and every object must exist with the specification it had while the system was healthy. The tools show the "
    "system up to now; kubectl reads and changes it, only within the application's namespace. Change as little as "
    "possible, and check whether it helped. End with one call of submit_mitigation."
)


class MitigationSession(AgentSession):
    """The actions of an agent on a live system, until it submits.

    Parameters
    ----------
    tools
        Tools of the live episode; their kubectl changes the system.
    """

    def __init__(self, tools: EpisodeTools) -> None:
        self._begin(tools, "mitigation", "submit_mitigation")
        self.instructions = INSTRUCTIONS

    def submit_mitigation(self, summary: Summary = "") -> ToolAnswer:
        """Report that the repair is complete, and end the session."""
        return self._finish({"summary": summary})


ROUNDING_S = 300
"""Users round times to five minutes."""
NEARBY_NS = 60 * SECOND_NS
"""Users complain about requests within this time before and after the alarm."""
FAILED_SHARE = 0.05
SLOWER, SLOWER_NS = 1.5, 25_000_000
"""Users notice mean latencies that grow by at least this factor and this number of nanoseconds."""


def compose_complaint(view: EpisodeView, alarm_ns: int) -> str:
    """Return what a user says about an alarm: an approximate time, and the requests that fail or became slow.

    The requests come from the clients' side, which agents cannot read. If no request changed, or the source recorded
    none, the user only says that something is wrong.

    Parameters
    ----------
    view
        The episode.
    alarm_ns
        The alarm, UTC nanoseconds.
    """
    time = datetime.fromtimestamp(round(alarm_ns / SECOND_NS / ROUNDING_S) * ROUNDING_S, UTC)
    return f"since about {time:%H:%M} UTC, {_describe_symptom(view, alarm_ns)}"


def _describe_symptom(view: EpisodeView, alarm_ns: int) -> str:
    table = view.table("requests", ["scheduled", "endpoint", "latency_ns", "outcome"])
    requests = table.set_column(0, "scheduled", pc.cast(table["scheduled"], "int64")).to_pandas()
    requests["failed"] = requests["outcome"] != "ok"
    is_near = requests["scheduled"].between(alarm_ns - NEARBY_NS, alarm_ns + NEARBY_NS, inclusive="left")
    recent = _summarise(requests[is_near])
    healthy = _summarise(requests[requests["scheduled"] < view.context.reference_end_ns]).reindex(recent.index)
    failures = (recent["failed"] - healthy["failed"]).dropna()
    if len(failures) and failures.max() >= FAILED_SHARE:
        return f"{failures.idxmax()} often fails"
    growth = (recent["latency_ns"] / healthy["latency_ns"]).dropna()
    slower = growth[(growth >= SLOWER) & (recent["latency_ns"] - healthy["latency_ns"] >= SLOWER_NS)]
    return f"{slower.idxmax()} is slow" if len(slower) else "something seems to be wrong"


def _summarise(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the share of failed requests and the mean latency by endpoint."""
    return requests.groupby(requests["endpoint"].astype(str))[["failed", "latency_ns"]].mean()
