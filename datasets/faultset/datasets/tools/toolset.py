"""All tools of an episode: called by name with arguments from anywhere, checked, answered and counted."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from faultset.core.errors import FaultsetError
from faultset.core.printable import printable
from faultset.datasets.kubectl.answers import ToolAnswer, found, invalid
from faultset.datasets.kubectl.printing import stamp
from faultset.datasets.tools.recorded_state import kubectl
from faultset.datasets.tools.recording import Recording, ViewClock
from faultset.datasets.tools.sql import query, sql_is_installed
from faultset.datasets.tools.state_tools import StateTools
from faultset.datasets.tools.telemetry_tools import LogTools, MetricTools, TraceTools
from faultset.datasets.views import EpisodeView

TOOLS_VERSION = "3"
"""Raised when a tool answers otherwise than before."""
LONGEST_ANSWER = 30_000
ALGORITHMIC = frozenset({"compare_metrics"})
"""Tools that do a part of an algorithm's work."""
CALLS_AT_ONCE = 4
"""Calls that a process computes at the same time, so that many agents need the memory of few."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool: what it is called, what it does, and what it takes."""

    name: str
    description: str
    arguments: type[BaseModel]
    function: Callable[..., ToolAnswer]

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
        return schema


class EpisodeTools(StateTools, LogTools, MetricTools, TraceTools):
    """What an operator may ask of a recorded episode. The truth cannot be reached from here.

    Parameters
    ----------
    view
        The episode without its truth.
    clock
        What counts as now; the end of the view by default.
    algorithms
        Also offer the tools that do a part of an algorithm's work.

    Attributes
    ----------
    counts
        Status -> how many answers had it.
    calls
        Tool -> how often it was called.
    repeats
        Calls that an earlier one, at the same moment, had made in the same words.
    """

    computing: AbstractContextManager[Any] = threading.BoundedSemaphore(CALLS_AT_ONCE)
    """Held while a call is computed; all sessions of a process have the same one."""

    def __init__(self, view: EpisodeView, clock: ViewClock | None = None, *, algorithms: bool = True) -> None:
        self.clock = ViewClock(view.context) if clock is None else clock
        self.recording = Recording(view, self.clock)
        self.counts: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.repeats = 0
        self._asked: set[str] = set()
        names = [name for name in TOOL_NAMES if algorithms or name not in ALGORITHMIC]
        if not sql_is_installed():
            names.remove("query")
        self.tools = {name: tool_of(getattr(self, name)) for name in names}

    def kubectl(
        self, command: Annotated[str, Field(description="For instance: kubectl get pods -o wide | grep -v Running")]
    ) -> ToolAnswer:
        """Run a kubectl command that reads; grep, head, tail, wc, sort, uniq and awk may follow behind pipes."""
        return kubectl(self.recording, command)

    def query(
        self,
        sql: Annotated[
            str,
            Field(
                max_length=20_000, description="One SELECT in DuckDB's SQL over metrics, spans, logs, events, objects."
            ),
        ],
    ) -> ToolAnswer:
        """Query the recorded tables with SQL; every table has a column time in UTC, metrics hold raw samples."""
        return query(self.recording, sql)

    def wait(
        self, seconds: Annotated[float, Field(gt=0, le=86_400, description="By how much to move the clock on.")]
    ) -> ToolAnswer:
        """Wait, so that more of the recording can be seen, at most up to its end."""
        moved = self.clock.wait(seconds)
        if not moved:
            return found("The recording has ended; there is nothing more to wait for.")
        return found(f"Waited {moved:g} s; {self.clock.left_s:g} s are left.")

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool by its name and return its answer with the time; whatever is given, nothing is raised.

        Parameters
        ----------
        name
            Of the tool.
        arguments
            A mapping, or its JSON text.
        """
        if name in self.tools:
            self.calls[name] += 1
            key = hashlib.sha256(repr((name, self.clock.now_ns, arguments)).encode("utf-8", "replace")).hexdigest()
            self.repeats += key in self._asked
            self._asked.add(key)
        answer = self._called(name, arguments)
        self.counts[answer.status] += 1
        return replace(answer, text=f"{_cut(answer)}\n[{stamp(self.clock.now_ns, 'seconds')}]")

    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description and parameters (JSON Schema) of each tool."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self.tools.values()
        ]

    def _called(self, name: str, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        tool = self.tools.get(name)
        if tool is None:
            return invalid(f'there is no tool "{printable(str(name)[:60])}"; there are {", ".join(self.tools)}.')
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
            if not isinstance(given, dict):
                return invalid(f"the arguments of {name} must be a JSON object.")
            # Some clients send null for what they leave out.
            optional = {key for key, field in tool.arguments.model_fields.items() if not field.is_required()}
            given = {key: value for key, value in given.items() if value is not None or key not in optional}
            checked = tool.arguments.model_validate(given)
        except ValidationError as error:
            return invalid(_validation_text(name, error))
        except (ValueError, TypeError, RecursionError):
            return invalid(f"the arguments of {name} are not JSON.")
        try:
            with self.computing:
                return tool.function(**{field: getattr(checked, field) for field in type(checked).model_fields})
        except FaultsetError as error:
            return invalid(str(error))
        except Exception:
            # An agent must never see how this program is made, and a mistake in it must not end the agent's run.
            _log.exception("tool %s", name)
            return invalid(f"{name} failed on these arguments; ask in another way.")


TOOL_NAMES = (
    "describe_system", "list_objects", "get_object", "list_events", "get_logs", "log_patterns", "list_metrics",
    "get_metric", "compare_metrics", "get_spans", "get_trace", "service_graph", "query", "kubectl", "wait",
)  # fmt: skip


def tool_of(function: Callable[..., ToolAnswer]) -> Tool:
    """Make a tool of a typed method with a docstring."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], ... if parameter.default is inspect.Parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    }
    name = function.__name__
    arguments = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
    return Tool(
        name=name,
        description=" ".join((inspect.getdoc(function) or "").split()),
        arguments=arguments,
        function=function,
    )


def _cut(answer: ToolAnswer) -> str:
    text = answer.text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")
    if len(text) > LONGEST_ANSWER:
        left_out = len(text) - LONGEST_ANSWER
        text = f"{text[:LONGEST_ANSWER]}\n# {left_out:,} more characters are left out; ask for less"
    return text if answer.cursor is None else f"{text}\n# more: cursor {answer.cursor}"


def _validation_text(name: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part)[:40] for part in first["loc"])
    return f"argument {printable(where) or '?'} of {name}: {first['msg'].lower()}."
