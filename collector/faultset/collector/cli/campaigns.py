"""`faultset campaign show` and `faultset campaign list`: the campaigns of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from faultset.core.console import command, json_option
from faultset.core.documents import parse_yaml, read_yaml_text
from faultset.core.errors import UsageError, suggest
from faultset.core.output import show_json, show_records

_dataset = click.argument("dataset", type=click.Path(path_type=Path, exists=True, file_okay=False))


@command("list")
@_dataset
@json_option
def list_campaigns(dataset: Path, as_json: bool) -> None:
    """List the campaigns that have added episodes to a dataset; --json names all their faults.

    \b
    Example:
      faultset campaign list data/
      faultset campaign list data/ --json
    """
    from faultset.collector.campaigns.records import campaign_ids, read_campaign

    rows = []
    for campaign in campaign_ids(dataset):
        record = read_campaign(dataset, campaign)
        request = record["request"] or _summarise_plans(record["plans"])
        rows.append(
            {
                "campaign": campaign,
                "faults": request["faults"],
                "apps": request["apps"],
                "platform": request["platform"],
                "profile": request["profile"],
                "seed": str(request["seed"]),
                "plans": len(record["plans"]),
                "failures": len(record["failures"]),
            }
        )
    if not as_json:
        rows = [row | {"faults": _shorten(row["faults"]), "apps": _shorten(row["apps"])} for row in rows]
    columns = ["campaign", "faults", "apps", "platform", "profile", "seed", "plans", "failures"]
    show_records(rows, columns=columns, as_json=as_json, wrap_at=100)


def _summarise_plans(plans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe the plans of a campaign without a request by the fields of a request."""
    return {
        "faults": sorted({plan["fault"] for plan in plans if plan["fault"]}),
        "apps": sorted({plan["app"] for plan in plans}),
        "platform": plans[0]["platform"],
        "profile": plans[0]["profile"],
        "seed": "as recorded",
    }


def _shorten(names: Sequence[str]) -> str:
    """Shorten a list of names to fit into a table cell.

    >>> _shorten(["pod-kill"]), _shorten(["pod-kill", "cpu-hog", "noop"])
    ('pod-kill', 'pod-kill and 2 more')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more" if names else "none"


@command("show", short_help="Print the request, plans and failures of a campaign.")
@_dataset
@click.argument("campaign")
@click.option("--as-config", is_flag=True, help="Print a file for collect --config instead of JSON.")
def show(dataset: Path, campaign: str, as_config: bool) -> None:
    """Print a campaign of a dataset: its request, plans and failures as JSON, or as a campaign file.

    \b
    Example:
      faultset campaign show data/ 1f0c2a9be771
      faultset campaign show data/ 1f0c2a9be771 --as-config > campaign.yaml
    """
    from faultset.collector.campaigns.records import as_options, read_campaign

    record = read_campaign(dataset, campaign)
    if as_config:
        click.echo(format_config(as_options(record)), nl=False)
    else:
        show_json(record)


def read_config(path: Path, option_names: Iterable[str]) -> dict[str, Any]:
    """Return the options in a campaign file, with lists as comma-separated names.

    Raises UsageError if the file is not a mapping, or an option has the wrong format or is not among `option_names`.
    """
    text = read_yaml_text(path, "campaign file")
    options = parse_yaml(text, f"campaign file {path}")
    if not isinstance(options, dict):
        kind = type(options).__name__
        raise UsageError(f"campaign file {path} must be a mapping of options of collect, but is a {kind}")
    names = set(option_names)
    for name, value in options.items():
        if name not in names:
            raise UsageError(f'campaign file {path} has an unknown option "{name}"; {suggest(str(name), names)}')
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            options[name] = ",".join(value)
        elif value is None or isinstance(value, list | dict):
            raise UsageError(
                f'option "{name}" in campaign file {path} must be one value or a list of names, got {value!r}'
            )
    return options


def format_config(options: Mapping[str, Any]) -> str:
    """Return options as the text of a campaign file that `read_config` reads."""
    return yaml.safe_dump(dict(options), sort_keys=False, default_flow_style=None)
