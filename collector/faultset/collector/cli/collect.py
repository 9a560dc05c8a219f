"""`collect`: run fault-injection episodes and write them into a dataset."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.collector.cli.cluster import JobLimit, cluster_options, platform_settings, stores_option
from faultset.collector.cli.interrupts import interrupts
from faultset.core.command_line.completion import complete_names
from faultset.core.command_line.console import DURATION, comma_separated, command
from faultset.core.command_line.output import json_option

if TYPE_CHECKING:
    from faultset.collector.platforms.impairments import Schedule

_NAMES = "Comma-separated names, or all."


def _use_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Take the values of a campaign file as defaults, so that options on the command line win."""
    if path is None:
        return
    from faultset.collector.campaigns.config import read_config
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


@command("collect")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_use_config,
    help="Campaign file (YAML) with any of these options; those on the command line win.",
)
@click.option(
    "--faults",
    required=True,
    metavar="NAMES",
    shell_complete=complete_names("faultset.faults", "all", "noop"),
    help=f"Faults to inject. {_NAMES} noop means none.",
)
@click.option(
    "--apps",
    required=True,
    metavar="NAMES",
    shell_complete=complete_names("faultset.apps", "all"),
    help=f"Applications to run. {_NAMES} Or paths of folders and files.",
)
@click.option("--targets", metavar="NAMES", help="Services to apply faults to; drawn at random, evenly, by default.")
@click.option(
    "--out",
    type=click.Path(),
    default="faultset-data",
    show_default=True,
    help="Folder of the dataset, or a URL such as s3://bucket/data.",
)
@click.option("--platform", default="local", show_default=True, help="Where the applications run.")
@click.option(
    "-j",
    "--jobs",
    type=JobLimit(),
    default="auto",
    show_default=True,
    help="Most episodes to run at once; auto means as many as the machine can run. Fewer run while it is short of CPU.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run the episodes on the workers of this dask scheduler, for instance tcp://10.0.0.5:8786.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Decides plans and load: the same seed gives the same plans and load.",
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Episodes for each fault.")
@click.option(
    "--spread", is_flag=True, help="Inject each fault into one of the applications that it fits, not into all of them."
)
@click.option(
    "--concurrent",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="Faults in each episode with a fault; 2 injects two different ones at once, on different targets.",
)
@click.option(
    "--schedule",
    type=click.Choice(["constant", "gradual", "intermittent", "delayed"]),
    help="How faults act over time; by default what each does by itself, for most constant.",
)
@click.option(
    "--normal",
    type=click.IntRange(min=0),
    help="Episodes without a fault in each application; by default as many as with a fault, at least 2; beside more "
    "than 6 faults half as many, at least 6.",
)
@click.option(
    "--no-fault",
    default="plain,disturbed,sham",
    metavar="KINDS",
    show_default=True,
    help="Kinds of episodes without a fault, which take turns.",
)
@click.option(
    "--profile",
    type=click.Choice(["quick", "standard", "long"]),
    default="standard",
    show_default=True,
    help="Lengths of the phases.",
)
@click.option("--rate", type=float, help="Requests per second; 20 by default.")
@click.option("--mix", help="Workload mix; the application's default by default. A..B changes from A to B.")
@click.option(
    "--load",
    metavar="KIND[:NAME=VALUE,...]",
    help="How the rate of requests changes: constant, bursty, daily, flash-crowd, ramp or replay:FILE.csv; "
    "bursty by default, constant with --profile quick.",
)
@click.option(
    "--regions", metavar="NAME=SHARE:TIME,...", default="", help="Where clients are, as eu=0.6:20ms,us=0.4:90ms."
)
@click.option(
    "--rollouts",
    type=click.IntRange(min=0),
    metavar="N",
    help="Healthy builds rolled out in each episode, to services without a fault; 1 by default, 6 with --profile long, "
    "none with quick.",
)
@click.option("--warmup", type=DURATION, help="Load before the view begins.")
@click.option("--baseline", type=DURATION, help="Healthy part of the view, on average.")
@click.option("--fault", type=DURATION, help="Faulty part of the view, on average.")
@click.option("--cooldown", type=DURATION, help="Time after the recovery for telemetry that is late.")
@click.option(
    "--step",
    type=DURATION,
    default=1.0,
    show_default="1s",
    help="Sampling interval of metrics; a cluster has its own.",
)
@click.option(
    "--trace-sampling",
    type=click.FloatRange(0.0, 1.0),
    default=1.0,
    show_default=True,
    help="Share of requests whose spans are kept.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names("faultset.sources"),
    help="Source of telemetry to add to those of the platform. Repeatable.",
)
@stores_option
@cluster_options
@click.option("--dry-run", is_flag=True, help="Print the plans and what they cost, and change nothing.")
@click.option("--fresh", is_flag=True, help="Run all plans again, as a new campaign, instead of resuming.")
@json_option
@click.version_option(version("faultset"), prog_name="faultset")
def collect(
    faults: str,
    apps: str,
    targets: str | None,
    out: str,
    platform: str,
    jobs: int | None,
    scheduler: str | None,
    seed: int,
    repeat: int,
    spread: bool,
    concurrent: int,
    schedule: Schedule | None,
    normal: int | None,
    no_fault: str,
    profile: str,
    rate: float | None,
    mix: str | None,
    load: str | None,
    regions: str,
    rollouts: int | None,
    dry_run: bool,
    fresh: bool,
    as_json: bool,
    step: float,
    trace_sampling: float,
    sources: tuple[str, ...],
    context: str | None,
    prometheus_url: str | None,
    jaeger_url: str | None,
    image: str | None,
    injector: str | None,
    stores: str | None,
    **lengths: float | None,
) -> None:
    """Run fault-injection episodes on live applications and write their telemetry and truth into a dataset.

    Running the same command again resumes it: only what is unfinished is run.

    \b
    Example:
      collect --faults all --apps hotel
      collect --faults target-port,revoke-auth --apps hotel --profile quick -j 4 --out data/
      collect --faults all --apps all --spread
      collect --faults all --apps hotel --platform kubernetes
      collect --faults all --apps hotel --platform kubernetes --injector chaos-mesh
      collect --faults all --apps hotel --stores original
      collect --faults all --apps hotel --scheduler tcp://10.0.0.5:8786 --out s3://bucket/data
      collect --config campaign.yaml --seed 7
    """
    from faultset.collector.campaigns.collection import collect as collect_campaign
    from faultset.collector.cli.plan_table import default_jobs, show_plans
    from faultset.collector.cli.progress import show_progress
    from faultset.collector.cli.summary import print_summary
    from faultset.collector.plans.campaign_plans import plan_campaign
    from faultset.collector.plans.requests import make_request

    settings = platform_settings(context=context, prometheus_url=prometheus_url, jaeger_url=jaeger_url, image=image)
    request = make_request(
        faults=comma_separated(faults),
        apps=comma_separated(apps),
        targets=comma_separated(targets),
        platform=platform,
        seed=seed,
        repeat=repeat,
        spread=spread,
        concurrent=concurrent,
        schedule=schedule,
        normal=normal,
        no_fault=comma_separated(no_fault),
        injector=injector,
        stores=stores,
        profile=profile,
        rate_rps=rate,
        mix=mix,
        load=load,
        regions=regions,
        rollouts=rollouts,
        step_s=step,
        trace_sampling=trace_sampling,
        sources=comma_separated(*sources),
        **{f"{name}_s": value for name, value in lengths.items()},
    )
    if dry_run:
        show_plans(plan_campaign(request), jobs or default_jobs(platform, scheduler), as_json=as_json)
        return
    with interrupts() as received, show_progress() as progress:
        result = collect_campaign(
            request,
            out=out,
            jobs=jobs,
            scheduler=scheduler,
            fresh=fresh,
            settings=settings,
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
