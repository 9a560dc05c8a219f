"""`collect`: run fault-injection episodes and write them into a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from faultset.collector.cli.cluster import (
    CLUSTER_FLAGS,
    JobLimit,
    campaign_options,
    cluster_options,
    interrupts,
    platform_settings,
    request_options,
)
from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option


def _use_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Take the values of a campaign file as defaults, so that options on the command line win."""
    if path is None:
        return
    from faultset.collector.cli.campaigns import read_config
    from faultset.core.errors import UsageError

    options_of = {
        option.lstrip("-"): other
        for other in context.command.params
        if other is not parameter and not other.is_eager
        for option in other.opts
        if option.startswith("--")
    }
    try:
        options = read_config(path, options_of)
    except UsageError as error:
        raise click.UsageError(str(error), context) from None
    defaults = {
        options_of[name].name: value.split(",") if options_of[name].multiple else value
        for name, value in options.items()
    }
    context.default_map = {**(context.default_map or {}), **defaults}


@command(
    "collect",
    groups={
        "What to run": "--faults --apps --platform --profile --repeat --config",
        "How to run": "--out --jobs --dry-run --fresh",
    },
    more={
        "Episodes": "--targets --spread --concurrent --schedule --normal --no-fault --rollouts --seed",
        "Load": "--rate --mix --load --regions",
        "Phases": "--warmup --healthy --faulty --cooldown",
        "Telemetry": "--step --trace-sampling --sources",
        "Platform": f"--injector --stores {CLUSTER_FLAGS} --scheduler",
    },
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_use_config,
    help="YAML file with these options; the command line overrides it.",
)
@campaign_options()
@click.option(
    "--out",
    type=click.Path(),
    default="faultset-data",
    help="Folder of the dataset, or a URL such as s3://bucket/data.",
)
@click.option(
    "-j",
    "--jobs",
    type=JobLimit(),
    default="auto",
    help="Maximum number of concurrent episodes; auto adapts to the machine.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Use the workers of this dask scheduler, for instance tcp://10.0.0.5:8786.",
)
@cluster_options
@click.option("--dry-run", is_flag=True, help="Print the plans and their cost; run nothing.")
@click.option("--fresh", is_flag=True, help="Start a new campaign instead of resuming.")
@json_option
def collect(
    out: str, jobs: int | None, scheduler: str | None, dry_run: bool, fresh: bool, as_json: bool, **options: Any
) -> None:
    """Run fault-injection episodes on live applications and write their telemetry and truth into a dataset.
    Repeat the command to resume an interrupted campaign; finished episodes are kept.

    \b
    Example:
      collect --faults all --apps hotel
      collect --faults target-port,revoke-auth --apps hotel --profile quick -j 4 --out data/
      collect --faults all --apps hotel --platform kubernetes --injector chaos-mesh
    """
    from faultset.collector.campaigns.collection import collect as collect_campaign
    from faultset.collector.cli.output import default_jobs, print_summary, show_plans, show_progress
    from faultset.collector.plans.campaign_plans import plan_campaign
    from faultset.collector.plans.requests import make_request

    request = make_request(**request_options(options))
    if dry_run:
        show_plans(plan_campaign(request), jobs or default_jobs(request.platform, scheduler), as_json=as_json)
        return
    with interrupts() as received, show_progress() as progress:
        result = collect_campaign(
            request,
            out=out,
            jobs=jobs,
            scheduler=scheduler,
            fresh=fresh,
            settings=platform_settings(**options),
            progress=progress,
            notify=lambda sentence: click.echo(sentence, err=True),
            should_stop=lambda: bool(received),
        )
    if result.interrupted:
        finished = sum(not one.failure for one in result.episodes)
        click.echo(
            f"stopped with {finished} of {len(result.plans)} episodes; run the same command again to go on", err=True
        )
        raise KeyboardInterrupt
    print_summary(result, as_json=as_json)
    result.raise_for_failures()
