"""Building trajectories step by step, with ids that are counted, and with values of any origin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from faultset.agents.trajectories.model import (
    AgentIdentity,
    FinalMetrics,
    StepMetrics,
    StepObservation,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryStep,
)

_DEEPEST = 100


class TrajectoryWriter:
    """Takes steps in order, then gives the trajectory."""

    def __init__(self, agent: str, *, version: str = "unknown", model: str | None = None) -> None:
        self._agent = AgentIdentity(name=agent, version=version, model_name=model)
        self._steps: list[TrajectoryStep] = []

    def said(self, source: str, message: str, *, timestamp: str | None = None) -> None:
        """Add a message of the system or the user."""
        self._steps.append(
            TrajectoryStep.model_validate(
                {"step_id": len(self._steps) + 1, "source": source, "message": plain_text(message)}
                | ({"timestamp": timestamp} if timestamp else {})
            )
        )

    def acted(
        self,
        message: str,
        *,
        calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
        results: Sequence[str | None] | None = None,
        errors: Sequence[bool] | None = None,
        reasoning: str | None = None,
        metrics: StepMetrics | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a step of the agent.

        Parameters
        ----------
        calls
            Names and arguments of the tools that it called.
        results
            What came back: one for each call, or without calls what came back of the message.
        errors
            Which results are errors.
        """
        number = len(self._steps) + 1
        made = [
            ToolCall(tool_call_id=f"{number}.{place}", function_name=plain_text(name), arguments=jsonable(arguments))
            for place, (name, arguments) in enumerate(calls or (), start=1)
        ]
        back = []
        for place, content in enumerate(results or ()):
            failed = bool(errors and place < len(errors) and errors[place])
            back.append(
                ToolResult(
                    source_call_id=made[place].tool_call_id if place < len(made) else None,
                    content=None if content is None else plain_text(content),
                    extra={"error": True} if failed else None,
                )
            )
        self._steps.append(
            TrajectoryStep(
                step_id=number,
                source="agent",
                message=plain_text(message),
                reasoning_content=None if reasoning is None else plain_text(reasoning),
                tool_calls=made or None,
                observation=StepObservation(results=back) if back else None,
                metrics=metrics,
                extra=jsonable(extra) if extra else None,
            )
        )

    def __len__(self) -> int:
        return len(self._steps)

    def trajectory(
        self,
        *,
        session_id: str | None = None,
        final_metrics: FinalMetrics | None = None,
        notes: str | None = None,
    ) -> Trajectory:
        """Return the trajectory; there must be a step."""
        return Trajectory(
            agent=self._agent, steps=self._steps, session_id=session_id, final_metrics=final_metrics, notes=notes
        )


def plain_text(text: str) -> str:
    """Return text that UTF-8 can hold: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def jsonable(value: Any, depth: int = 0) -> Any:
    """Return a value of Python literals as JSON has it; what JSON lacks becomes its text."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value) if value.bit_length() < 10_000 else "a very large number"
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {plain_text(str(key)): jsonable(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one, depth + 1) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((jsonable(one, depth + 1) for one in value), key=repr)
    return plain_text(repr(value)[:1000])
