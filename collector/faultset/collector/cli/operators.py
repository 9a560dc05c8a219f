"""Options of `mitigate` about agents that repair by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.completion import complete_names
from faultset.core.console import DURATION, comma_separated
from faultset.core.errors import UsageError

if TYPE_CHECKING:
    from faultset.collector.mitigation.messages import RepairOrder

OPERATOR = "agent"
_LONGEST_S = 900.0


def operator_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which agents repair, and with what; `operator_orders` takes their values."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option(
        "--agents",
        metavar="NAMES",
        shell_complete=complete_names("faultset.agents"),
        help="Agents that look and act on the live system, comma-separated.",
    ),
    click.option("--trials", type=click.IntRange(1, 100), help="Attempts of each agent at each fault.  [default: 1]"),
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
    click.option(
        "--prices",
        type=click.Path(path_type=Path, dir_okay=False),
        help="JSON file with the prices of models; see docs/agents.md.",
    ),
)
AGENT_OPTIONS = (
    "agents", "trials", "model", "base_url", "key_variable", "max_steps", "max_tokens", "max_time", "prices",
)  # fmt: skip


def operator_orders(given: Mapping[str, Any], *, within_s: float, sustain_s: float) -> list[RepairOrder]:
    """Return a repair for each agent and trial that the options name.

    Raises
    ------
    UsageError
        An agent is not known or lacks a model, or an option belongs to agents and there are none.
    """
    from faultset.collector.mitigation.messages import OperatorOrder, RepairOrder
    from faultset.collector.mitigation.operators import load_operator
    from faultset.collector.mitigation.repairs import check_lengths

    names: Sequence[str] = comma_separated(given["agents"])
    unused = next((name for name in AGENT_OPTIONS[1:] if given[name] is not None), None)
    if not names:
        if unused is not None:
            raise UsageError(f"--{unused.replace('_', '-')} is about agents; name them with --agents")
        return []
    check_lengths(within_s, sustain_s)
    seconds = given["max_time"] or _LONGEST_S
    limits = {"steps": given["max_steps"], "tokens": given["max_tokens"], "seconds": seconds}
    shared = {
        "model": given["model"],
        "base_url": given["base_url"],
        "key_variable": given["key_variable"],
        "prices": None if given["prices"] is None else str(given["prices"].absolute()),
        "limits": {name: value for name, value in limits.items() if value is not None},
    }
    operator = load_operator(OPERATOR)
    orders = []
    for name in dict.fromkeys(names):
        for trial in range(given["trials"] or 1):
            settings = {key: value for key, value in shared.items() if value is not None}
            settings |= {"agent": name, "trial": trial}
            title = operator.title(settings)
            code = dict(operator.code(settings))
            orders.append(
                RepairOrder(
                    name=title,
                    operator=OperatorOrder(operator=OPERATOR, settings=settings, seconds=seconds, code=code),
                    within_s=within_s,
                    sustain_s=sustain_s,
                )
            )
    return orders


def keep_records(out: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write what agents say of their work beside the results."""
    from faultset.collector.mitigation.operators import load_operator

    if records:
        load_operator(OPERATOR).keep(out, records)
