"""Options of `evaluate` about agents and their model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.command_line.model_options import LIMIT_OPTIONS, PRICES_OPTION, SERVER_OPTIONS

if TYPE_CHECKING:
    from faultset.evaluators.agent_evaluation.choice import AgentSettings


def agent_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say with which model and limits agents are run; `agent_settings` takes their values."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--trials", type=click.IntRange(1, 100), help="Attempts of an agent at each problem.  [default: 3]"),
    *SERVER_OPTIONS,
    *LIMIT_OPTIONS,
    click.option("--max-cost", type=float, metavar="USD", help="No attempt is begun once all together cost this much."),
    PRICES_OPTION,
)


def agent_settings(
    *,
    trials: int | None,
    model: str | None,
    base_url: str | None,
    key_variable: str | None,
    max_steps: int | None,
    max_tokens: int | None,
    max_time: float | None,
    max_cost: float | None,
    prices: Path | None,
) -> AgentSettings:
    """Return what the options say."""
    from faultset.agents.models.openai_server import model_server
    from faultset.agents.running.limits import AttemptLimits
    from faultset.evaluators.agent_evaluation.choice import TRIALS, AgentSettings

    server = model_server(model, base_url, key_variable)
    limits = {"steps": max_steps, "tokens": max_tokens, "seconds": max_time}
    return AgentSettings(
        trials=trials or TRIALS,
        limits=AttemptLimits(**{name: value for name, value in limits.items() if value is not None}),  # type: ignore[arg-type]
        server=server,
        prices=prices,
        max_cost_usd=max_cost,
    )


def words_of_cost(cost_usd: float) -> str:
    """Say what agents have cost so far."""
    return f"agents, {cost_usd:.2f} USD" if cost_usd else "agents"
