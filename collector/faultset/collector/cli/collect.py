"""`collect`: run fault-injection episodes and write them into a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from faultset.collector.cli.cluster import (
    CLUSTER_FLAGS,
    JobLimit,
    campaign_options,
    cluster_options,
    interrupts,
    platform_settings,
    request_options,
)
from faultset.core.console import command, json_option

if TYPE_CHECKING:
    from faultset.collector.plans.plan import Plan
    from faultset.collector.plans.requests import CampaignRequest


def _use_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Use the values of a campaign file as defaults, so that options on the command line override them."""
    if path is None:
        return
    from faultset.collector.cli.campaigns import read_config
    from faultset.core.errors import UsageError

    parameters = {
        option.lstrip("-"): other
        for other in context.command.params
        if other is not parameter and not other.is_eager
        for option in other.opts
        if option.startswith("--")
    }
    try:
        options = read_config(path, parameters)
    except UsageError as error:
        raise click.UsageError(str(error), context) from None
    defaults = {
        parameters[name].name: value.split(",") if parameters[name].multiple else value
        for name, value in options.items()
    }
    context.default_map = {**(context.default_map or {}), **defaults}


@command(
    "collect",
    groups={
        "Episodes": "--faults --apps --platform --profile --repeat --config",
        "Run": "--out --jobs --dry-run --fresh",
    },
    more={
        "Episodes": "--targets --spread --concurrent --schedule --normal --no-fault --rollouts --seed",
        "Recordings": "--recording --incidents --overlap --chunk",
        "Load": "--rate --mix --load --regions",
        "Phases": "--warmup --healthy --faulty --cooldown",
        "Telemetry": "--step --trace-sampling --slow-traces --log-levels --sources",
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
@click.option(
    "--as-in",
    type=click.Path(path_type=Path, exists=True),
    help="Run the plans of this dataset, card or campaign file again, instead of --faults and --apps.",
)
@campaign_options(required=False)
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
    "--scheduler", metavar="ADDRESS", help="Use the workers of this dask scheduler, for instance tcp://10.0.0.5:8786."
)
@cluster_options
@click.option("--dry-run", is_flag=True, help="Print the plans and their cost; run nothing.")
@click.option("--fresh", is_flag=True, help="Start a new campaign instead of resuming.")
@json_option
def collect(
    out: str,
    as_in: Path | None,
    jobs: int | None,
    scheduler: str | None,
    dry_run: bool,
    fresh: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run fault-injection episodes, or make long recordings with incidents, and write them into a dataset.
    Repeat the command to resume; finished episodes are kept.

    \b
    Example:
      collect --faults all --apps hotel --platform kubernetes --profile quick -j 4 --out data/
      collect --recording 4h --incidents 24 --apps hotel
    """
    if options["recording_s"] is not None and not options["faults"]:
        options["faults"] = ("all",)
    _check_source(as_in, options)
    from faultset.collector.campaigns.collection import collect as collect_campaign
    from faultset.collector.cli.output import default_jobs, print_summary, raise_interrupted, show_plans, show_progress
    from faultset.collector.plans.requests import make_request

    campaign = request_options(options)
    request = None if as_in else make_request(**campaign)
    if dry_run:
        plans = _plan(request, as_in)
        show_plans(plans, jobs or default_jobs(plans[0].platform, scheduler), as_json=as_json)
        return
    with interrupts() as received, show_progress() as progress:
        result = collect_campaign(
            request,
            out=out,
            as_in=as_in,
            jobs=jobs,
            scheduler=scheduler,
            fresh=fresh,
            settings=platform_settings(**options),
            progress=progress,
            notify=lambda sentence: click.echo(sentence, err=True),
            should_stop=lambda: bool(received),
        )
    if result.interrupted:
        done = sum(not episode.failure for episode in result.episodes)
        version = result.version if any(plan.recording for plan in result.plans) else ""
        raise_interrupted(done, len(result.plans), "episode", version)
    print_summary(result, as_json=as_json)
    result.raise_for_failures()


def _plan(request: CampaignRequest | None, as_in: Path | None) -> Sequence[Plan]:
    """Return the plans of a request, or the repeatable plans in `as_in`."""
    from faultset.collector.plans.campaign_plans import plan_campaign
    from faultset.collector.plans.recorded_plans import read_recorded_plans, select_repeatable

    if as_in is None:
        assert request is not None
        return plan_campaign(request)
    plans, objections = select_repeatable(read_recorded_plans(as_in))
    for sentence in objections:
        click.echo(sentence, err=True)
    return plans


def _check_source(as_in: Path | None, options: dict[str, Any]) -> None:
    """Raise UsageError unless either --as-in or other options describe the campaign."""
    from faultset.collector.plans.options import campaign_options as declared_options
    from faultset.core.errors import UsageError

    context, declared = click.get_current_context(), declared_options()
    if as_in is None:
        missing = [name for name, option in declared.items() if option.is_required and not options[name]]
        if missing:
            raise UsageError(
                f"a campaign needs --{missing[0]}, but it is missing. Add it, or repeat a campaign with --as-in"
            )
        return
    for name, option in declared.items():
        if context.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP):
            raise UsageError(
                f"--as-in must repeat a campaign without changes, but --{option.flag} changes it. Leave one of them out"
            )
