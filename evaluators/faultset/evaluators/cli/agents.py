"""Options of `evaluate` about agents and their model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import DURATION

if TYPE_CHECKING:
    from faultset.evaluators.agent_evaluation.choice import AgentSettings


def agent_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say with which model and limits agents are run; `agent_settings` takes their values."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--trials", type=click.IntRange(1, 100), help="Attempts of an agent at each problem.  [default: 3]"),
    click.option("--model", metavar="NAME", help="Model that agents ask, as its server calls it."),
    click.option(
        "--base-url",
        metavar="URL",
        help="Server that speaks OpenAI's chat completions.  [default: https://api.openai.com/v1]",
    ),
    click.option(
        "--key-variable",
        metavar="NAME",
        help="Environment variable that holds the server's key.  [default: OPENAI_API_KEY]",
    ),
    click.option(
        "--max-steps", type=click.IntRange(1, 1000), help="Replies of the model in one attempt.  [default: 30]"
    ),
    click.option(
        "--max-tokens", type=click.IntRange(min=1), help="Tokens of one attempt, both ways.  [default: 500000]"
    ),
    click.option("--max-time", type=DURATION, help="Time of one attempt, model and tools.  [default: 15m]"),
    click.option("--max-cost", type=float, metavar="USD", help="No attempt is begun once all together cost this much."),
    click.option(
        "--prices",
        type=click.Path(path_type=Path, dir_okay=False),
        help="JSON file with the prices of models; see docs/agents.md.",
    ),
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
    from faultset.agents.models.openai_server import KEY_VARIABLE, OPENAI, ModelServer
    from faultset.agents.running.limits import AttemptLimits
    from faultset.core.errors import UsageError
    from faultset.evaluators.agent_evaluation.choice import TRIALS, AgentSettings

    if model is None and (base_url or key_variable):
        raise UsageError("--base-url and --key-variable say where the model is; name it with --model")
    server = None
    if model is not None:
        server = ModelServer(model=model, base_url=base_url or OPENAI, key_variable=key_variable or KEY_VARIABLE)
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
