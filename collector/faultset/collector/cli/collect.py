"""`collect`: run fault-injection episodes and write them into a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from faultset.collector.cli.cluster import cluster_options, platform_settings
from faultset.core.completion import complete_names
from faultset.core.console import DURATION, command

_NAMES = "Comma-separated names, or all."


@command("collect")
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
@click.option("--targets", metavar="NAMES", help="Services to apply faults to; drawn, balanced, when left out.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("faultset-data"), show_default=True)
@click.option("--platform", default="local", show_default=True, help="Where the applications run.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Episodes at a time; as many as the machine bears.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same plans and load."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Episodes for each fault.")
@click.option("--normal", type=click.IntRange(min=0), help="No-fault episodes; half as many as faults, at least 6.")
@click.option("--profile", type=click.Choice(["quick", "standard"]), default="standard", show_default=True)
@click.option("--rate", type=float, default=20.0, show_default=True, help="Requests per second.")
@click.option("--mix", help="Workload mix of the application; its default when left out.")
@click.option("--warmup", type=DURATION, help="Load before the view begins.")
@click.option("--baseline", type=DURATION, help="Healthy part of the view, on average.")
@click.option("--fault", type=DURATION, help="Faulty part of the view, on average.")
@click.option("--cooldown", type=DURATION, help="Load after the recovery.")
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
@cluster_options
@click.option("--dry-run", is_flag=True, help="Print the plans and touch nothing.")
@click.option("--fresh", is_flag=True, help="Run all plans anew, as a new campaign, instead of resuming.")
def collect(
    faults: str,
    apps: str,
    targets: str | None,
    out: Path,
    platform: str,
    jobs: int | None,
    seed: int,
    repeat: int,
    normal: int | None,
    profile: str,
    rate: float,
    mix: str | None,
    dry_run: bool,
    fresh: bool,
    step: float,
    trace_sampling: float,
    context: str | None,
    prometheus_url: str | None,
    jaeger_url: str | None,
    image: str | None,
    **lengths: float | None,
) -> None:
    """Run fault-injection episodes on live applications and write their telemetry and truth into a dataset.

    Running the same command again resumes it: only what is unfinished is run.

    \b
    Example:
      collect --faults all --apps hotel
      collect --faults target-port,revoke-auth --apps hotel --profile quick -j 4 --out data/
      collect --faults all --apps hotel --platform kubernetes
    """
    from faultset.collector.campaigns.session import Session
    from faultset.collector.plans.plan import profile_phases
    from faultset.collector.plans.request import Request, plan_campaign
    from faultset.collector.platforms.api.profiles import Phases

    settings = platform_settings(context=context, prometheus_url=prometheus_url, jaeger_url=jaeger_url, image=image)
    base = profile_phases(profile, platform)
    given = {f"{name}_s": value for name, value in lengths.items() if value is not None}
    phases = Phases(**{**vars(base), **given})
    request = Request(
        faults=_names(faults),
        apps=_deployed_here() if apps == "all" else _names(apps),
        targets=_names(targets or ""),
        platform=platform,
        seed=seed,
        repeat=repeat,
        normal=normal,
        phases=phases,
        profile=profile if phases == base else "custom",
        rate_rps=rate,
        mix=mix,
        step_s=step,
        trace_sampling=trace_sampling,
    )
    plans = plan_campaign(request)
    if dry_run:
        _show_plans(plans)
        return
    Session(request, plans, out, jobs=jobs, fresh=fresh, settings=settings).run()


def _deployed_here() -> tuple[str, ...]:
    from faultset.collector.apps import load_apps

    return tuple(name for name, app in load_apps().items() if app.deployed is None)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _show_plans(plans: Any) -> None:
    from faultset.collector.plans.plan import draw
    from faultset.core.console import show_records

    rows = [
        {
            "number": number,
            "episode": plan.episode,
            "app": plan.app,
            "fault": plan.fault or f"none ({plan.no_fault_kind})",
            "target": plan.target or "",
            "onset_s": round(draw(plan).onset_s, 1),
            "view_s": plan.phases.view_s,
            "rate_rps": plan.rate_rps,
            "mix": plan.mix,
            "seed": str(plan.seed),
        }
        for number, plan in enumerate(plans, 1)
    ]
    show_records(rows, columns=list(rows[0]))
