"""Options of `mitigate` about agents that repair by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.command_line.completion import complete_names
from faultset.core.command_line.console import comma_separated
from faultset.core.command_line.model_options import LIMIT_OPTIONS, PRICES_OPTION, SERVER_OPTIONS
from faultset.core.errors import UsageError

if TYPE_CHECKING:
    from faultset.collector.mitigation.messages import RepairOrder

MITIGATOR = "agent"
_LONGEST_S = 900.0


def mitigator_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which agents repair, and with what; `mitigator_orders` takes their values."""
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
    *SERVER_OPTIONS,
    *LIMIT_OPTIONS,
    PRICES_OPTION,
)
AGENT_OPTIONS = (
    "agents", "trials", "model", "base_url", "key_variable", "max_steps", "max_tokens", "max_time", "prices",
)  # fmt: skip


def mitigator_orders(given: Mapping[str, Any], *, within_s: float, sustain_s: float) -> list[RepairOrder]:
    """Return a repair for each agent and trial that the options name.

    Raises
    ------
    UsageError
        An agent is not known or lacks a model, or an option belongs to agents and there are none.
    """
    from faultset.collector.mitigation.messages import MitigatorOrder, RepairOrder
    from faultset.collector.mitigation.mitigators import load_mitigator
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
    mitigator = load_mitigator(MITIGATOR)
    orders = []
    for name in dict.fromkeys(names):
        for trial in range(given["trials"] or 1):
            settings = {key: value for key, value in shared.items() if value is not None}
            settings |= {"agent": name, "trial": trial}
            title = mitigator.title(settings)
            code = dict(mitigator.code(settings))
            orders.append(
                RepairOrder(
                    name=title,
                    mitigator=MitigatorOrder(mitigator=MITIGATOR, settings=settings, seconds=seconds, code=code),
                    within_s=within_s,
                    sustain_s=sustain_s,
                )
            )
    return orders


def keep_records(out: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write what agents say of their work beside the results."""
    from faultset.collector.mitigation.mitigators import load_mitigator

    if records:
        load_mitigator(MITIGATOR).keep(out, records)
