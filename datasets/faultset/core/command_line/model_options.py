"""Options of commands that let agents ask a model: which one, where it is, and what one attempt may use."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.command_line.console import DURATION

SERVER_OPTIONS = (
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
)
LIMIT_OPTIONS = (
    click.option(
        "--max-steps", type=click.IntRange(1, 1000), help="Replies of the model in one attempt.  [default: 30]"
    ),
    click.option(
        "--max-tokens", type=click.IntRange(min=1), help="Tokens of one attempt, both ways.  [default: 500000]"
    ),
    click.option("--max-time", type=DURATION, help="Time of one attempt, model and tools.  [default: 15m]"),
)
PRICES_OPTION = click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON file with the prices of models; see docs/agents.md.",
)
