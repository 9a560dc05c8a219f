"""Call the tools of an episode by name: check untrusted arguments, answer, and count calls."""

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
from faultset.core.times import rfc3339
from faultset.datasets.kubectl.printing import ToolAnswer, answer_invalid, answer_ok
from faultset.datasets.tools.recorded_state import kubectl
from faultset.datasets.tools.recording import ViewClock, VisibleTables
from faultset.datasets.tools.sql import query, sql_is_installed
from faultset.datasets.tools.state_tools import StateTools
from faultset.datasets.tools.telemetry_tools import LogTools, MetricTools, TraceTools
from faultset.datasets.views import EpisodeView

TOOLS_VERSION = "5"
"""Increment this when descriptions or answers of tools change."""
LONGEST_ANSWER = 30_000
ALGORITHMIC = frozenset({"compare_metrics"})
"""Tools that compute a part of a diagnosis."""
MAX_CONCURRENT_CALLS = 4
"""Maximum number of calls that a process computes concurrently, which limits the memory for many agents."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Tool:
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
    """Tools to query a recorded episode; they cannot reach the truth.

    Parameters
    ----------
    view
        The episode without its truth.
    clock
        The current time; by default the end of the view.
    algorithms
        Whether to include tools that compute a part of a diagnosis.

    Attributes
    ----------
    counts
        Status -> number of answers.
    calls
        Tool -> number of calls.
    repeats
        Number of calls that repeat an earlier one with the same arguments and current time.
    """

    call_slots: AbstractContextManager[Any] = threading.BoundedSemaphore(MAX_CONCURRENT_CALLS)
    """Held while a call is computed; shared by all sessions of a process."""

    def __init__(self, view: EpisodeView, clock: ViewClock | None = None, *, algorithms: bool = True) -> None:
        self.clock = ViewClock(view.context) if clock is None else clock
        self.recording = VisibleTables(view, self.clock)
        self.counts: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.repeats = 0
        self._call_keys: set[str] = set()
        names = [name for name in TOOL_NAMES if algorithms or name not in ALGORITHMIC]
        if not sql_is_installed():
            names.remove("query")
        self.tools = {name: build_tool(getattr(self, name)) for name in names}

    def kubectl(
        self, command: Annotated[str, Field(description="For instance: kubectl get pods -o wide | grep -v Running")]
    ) -> ToolAnswer:
        """Run a read-only kubectl command, optionally piped into grep, head, tail, wc, sort, uniq or awk."""
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
        """Query the recorded tables with SQL; every table has a column time in UTC, metrics contain raw samples."""
        return query(self.recording, sql)

    def wait(self, seconds: Annotated[float, Field(gt=0, le=86_400, description="Seconds to wait.")]) -> ToolAnswer:
        """Advance the time, at most to the end of the recording, to see more of it."""
        waited_s = self.clock.wait(seconds)
        if not waited_s:
            return answer_ok("The recording has ended; waiting shows nothing more.")
        return answer_ok(f"Waited {waited_s:g} s; {self.clock.left_s:g} s remain.")

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool and return its answer with the current time; invalid arguments also get an answer."""
        if name in self.tools:
            self.calls[name] += 1
            key = hashlib.sha256(repr((name, self.clock.now_ns, arguments)).encode("utf-8", "replace")).hexdigest()
            self.repeats += key in self._call_keys
            self._call_keys.add(key)
        answer = self._answer(name, arguments)
        self.counts[answer.status] += 1
        return replace(answer, text=f"{_shorten(answer)}\n[{rfc3339(self.clock.now_ns)}]")

    def schemas(self) -> list[dict[str, Any]]:
        """Return the name, description and parameters (JSON Schema) of each tool."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self.tools.values()
        ]

    def _answer(self, name: str, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        tool = self.tools.get(name)
        if tool is None:
            return answer_invalid(f'unknown tool "{printable(str(name)[:60])}"; choose one of {", ".join(self.tools)}.')
        try:
            values = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
            if not isinstance(values, dict):
                return answer_invalid(f"the arguments of {name} must be a JSON object.")
            # some clients send null for omitted arguments
            optional = {key for key, field in tool.arguments.model_fields.items() if not field.is_required()}
            values = {key: value for key, value in values.items() if value is not None or key not in optional}
            checked = tool.arguments.model_validate(values)
        except ValidationError as error:
            return answer_invalid(_describe_validation_error(name, error))
        except (ValueError, TypeError, RecursionError):
            return answer_invalid(f"the arguments of {name} are not JSON.")
        try:
            with self.call_slots:
                return tool.function(**{field: getattr(checked, field) for field in type(checked).model_fields})
        except FaultsetError as error:
            return answer_invalid(str(error))
        except Exception:
            # A bug must neither reveal this program's code to an agent nor end the agent's run.
            _log.exception("tool %s", name)
            return answer_invalid(f"{name} failed on these arguments; use different ones.")


TOOL_NAMES = (
    "describe_system", "list_objects", "get_object", "list_events", "get_logs", "log_patterns", "list_metrics",
    "get_metric", "compare_metrics", "get_spans", "get_trace", "service_graph", "query", "kubectl", "wait",
)  # fmt: skip


def build_tool(function: Callable[..., ToolAnswer]) -> Tool:
    """Return a tool that calls a typed method with a docstring."""
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


def _shorten(answer: ToolAnswer) -> str:
    text = answer.text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")
    if len(text) > LONGEST_ANSWER:
        omitted = len(text) - LONGEST_ANSWER
        text = f"{text[:LONGEST_ANSWER]}\n# {omitted:,} more characters are omitted; request less"
    return text if answer.cursor is None else f"{text}\n# more: cursor {answer.cursor}"


def _describe_validation_error(name: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    argument = ".".join(str(key)[:40] for key in first["loc"])
    return f"argument {printable(argument) or '?'} of {name}: {first['msg'].lower()}."
