"""A run as a row: what its trajectory cost, counted in messages, calls, errors, repeats and tokens."""

from __future__ import annotations

from typing import Any

from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.runs.record import AgentRun
from faultset.agents.trajectories.model import Trajectory
from faultset.agents.trajectories.writing import jsonable
from faultset.core.json_text import canonical_json

_LONGEST = 500
"""Characters of a name."""


def counted_run(source: str, trajectory: Trajectory, found: ReadAnswer, **fields: Any) -> AgentRun:
    """Return a run as a row, without its name, paths and hashes.

    Parameters
    ----------
    source
        Name of the format.
    found
        Status and answer, from `faultset.agents.runs.statuses.decided`.
    **fields
        Fields of `AgentRun`, which stand above what was counted.
    """
    agent = trajectory.agent
    record = {
        "run": "unnamed",
        "format": source,
        "agent": agent.name[:_LONGEST],
        "agent_version": None if agent.version == "unknown" else agent.version[:_LONGEST],
        "model": agent.model_name and agent.model_name[:_LONGEST],
        "status": found.status,
        "status_reason": found.reason,
        "answer_json": None if found.answer is None else canonical_json(jsonable(found.answer)),
    }
    return AgentRun.model_validate(record | _counts(trajectory) | fields)


def _counts(trajectory: Trajectory) -> dict[str, Any]:
    steps = trajectory.agent_steps
    calls = [call for step in steps for call in step.tool_calls or ()]
    results = [result for step in steps if step.observation for result in step.observation.results]
    seen: set[tuple[str, str]] = set()
    repeats = 0
    for step in steps:
        said = (step.text, canonical_json([[call.function_name, call.arguments] for call in step.tool_calls or ()]))
        if any(said) and said != ("", "[]"):
            repeats += said in seen
            seen.add(said)
    return {
        "steps": len(steps),
        "tool_calls": len(calls),
        "tool_errors": sum(bool(result.extra and result.extra.get("error")) for result in results),
        "repeats": repeats,
        **_tokens(trajectory),
    }


def _tokens(trajectory: Trajectory) -> dict[str, Any]:
    """Return the sums that the file states, else the sums of its steps; nothing is estimated here."""
    final, steps = trajectory.final_metrics, [step.metrics for step in trajectory.agent_steps if step.metrics]

    def total(name: str) -> Any:
        stated = getattr(final, f"total_{name}", None) if final else None
        parts = [value for metrics in steps if (value := getattr(metrics, name)) is not None]
        found = stated if stated is not None else sum(parts) if parts else None
        return found if found is not None and 0 <= found < 2**63 else None

    tokens = {name: total(name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    cost = total("cost_usd")
    known = any(value is not None for value in tokens.values())
    return {**tokens, "cost_usd": None if cost is None else float(cost), "tokens_source": "api" if known else "none"}
