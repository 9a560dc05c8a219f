"""The steps of an attempt as they are made: a reply of the model with the calls that follow it, or a call alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from faultset.agents.models.contract import ModelReply
from faultset.agents.trajectories.model import StepMetrics, Trajectory
from faultset.agents.trajectories.writing import TrajectoryWriter
from faultset.datasets.tools.tool_answers import ToolAnswer


@dataclass
class _OpenStep:
    """A reply whose calls are being carried out."""

    reply: ModelReply
    role: str
    cost_usd: float | None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: list[ToolAnswer] = field(default_factory=list)


class StepRecorder:
    """Writes the trajectory of an attempt."""

    def __init__(self, agent: str, version: str, model: str | None, instructions: str) -> None:
        self._writer = TrajectoryWriter(agent, version=version, model=model)
        self._writer.said("user", instructions)
        self._open: _OpenStep | None = None

    def replied(self, reply: ModelReply, role: str, cost_usd: float | None) -> None:
        """Begin a step with a reply."""
        self._close()
        self._open = _OpenStep(reply, role, cost_usd)

    def called(self, name: str, arguments: dict[str, Any], answer: ToolAnswer) -> None:
        """Add a call with its answer to the open step, or as one of its own."""
        if self._open is not None:
            self._open.calls.append((name, arguments))
            self._open.answers.append(answer)
        else:
            self._acted("", [(name, arguments)], [answer])

    def ended(self, status: str, reason: str) -> None:
        """Say why no answer came, as the last message."""
        self._close()
        self._writer.said("system", f"{status}: {reason}")

    def trajectory(self) -> Trajectory:
        """Return what was written."""
        self._close()
        return self._writer.trajectory()

    def _close(self) -> None:
        step, self._open = self._open, None
        if step is None:
            return
        reply = step.reply
        known = any(value is not None for value in (reply.prompt_tokens, reply.completion_tokens))
        metrics = StepMetrics(
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            cost_usd=step.cost_usd,
        )
        extra = {} if step.role == "act" else {"role": step.role}
        self._acted(
            reply.text, step.calls, step.answers, reply.reasoning, metrics if known or step.cost_usd else None, extra
        )

    def _acted(
        self,
        text: str,
        calls: list[tuple[str, dict[str, Any]]],
        answers: list[ToolAnswer],
        reasoning: str | None = None,
        metrics: StepMetrics | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        statuses = {"statuses": [answer.status for answer in answers]} if answers else {}
        self._writer.acted(
            text,
            calls=calls,
            results=[answer.text for answer in answers],
            errors=[answer.status == "invalid" for answer in answers],
            reasoning=reasoning,
            metrics=metrics,
            extra=(extra or {}) | statuses,
        )
