"""`faultset try-fault`: try one fault on a live application, within a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.collector.cli.cluster import campaign_options, cluster_options, platform_settings, raised_interrupts
from faultset.core.console import command, complete_names, json_option
from faultset.core.output import show_records

if TYPE_CHECKING:
    from faultset.collector.episodes.fault_steps import FaultTrial
    from faultset.collector.faults.registry import FaultSpec
    from faultset.collector.platforms.hosts import PlatformHost
    from faultset.collector.spec.app import AppSpec


@command("try-fault")
@click.argument("name", shell_complete=complete_names("faultset.faults"))
@click.option("--app", default="hotel", show_default=True, help="Application: a name or a path.")
@click.option("--target", help="Service to apply the fault to; drawn at random by default.")
@click.option("--platform", default="local", show_default=True, help="local or kubernetes.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the target and parameters."
)
@campaign_options("stores", "injector")
@cluster_options
@json_option
def try_fault(
    name: str, app: str, target: str | None, platform: str, seed: int, stores: str | None, as_json: bool, **options: Any
) -> None:
    """Deploy an application, inject one fault, check its effect, undo it, and remove everything.

    Nothing is recorded. `faultset doctor --fault NAME` tries a fault in memory instead.

    \b
    Example:
      faultset try-fault slow-store --app hotel
      faultset try-fault http-abort --app social --target text-service
    """
    from faultset.collector.apps import load_app
    from faultset.collector.faults.registry import get_fault, unsupported_faults
    from faultset.collector.plans.planned_app import check_stores, with_stores
    from faultset.collector.plans.requests import parse_stores
    from faultset.collector.platforms.hosts import open_host
    from faultset.core.errors import PlatformError, UsageError

    choice = parse_stores(stores, platform)
    spec, app_spec = get_fault(name), with_stores(load_app(app), choice, platform)
    service = _choose_target(spec, app_spec, target, seed)
    host = open_host(platform, platform_settings(**options))
    if reason := unsupported_faults(host, [spec]).get(name):
        raise UsageError(f"fault {name} cannot be injected on platform {platform}: {reason}; choose another fault")
    host.check()
    for sentence in check_stores(host, [app_spec]) if choice else ():
        click.echo(sentence, err=True)
    trial = _run_trial(spec, service, host, app_spec, seed)
    row = _describe_trial(name, trial)
    show_records([row], columns=list(row), as_json=as_json)
    if trial.evidence is None:
        raise PlatformError(
            f"fault {name} on {service} was injected and undone, but its check did not confirm it; correct the fault's "
            "check, or try another target with --target"
        )


def _choose_target(spec: FaultSpec, app: AppSpec, target: str | None, seed: int) -> str:
    """Return the named or a random target; raise UsageError if the fault cannot be applied to it."""
    import numpy as np

    from faultset.collector.plans.fault_choice import unavailable_reason
    from faultset.core.errors import UsageError, unknown_name

    if reason := unavailable_reason(spec, app):
        raise UsageError(f"fault {spec.name} {reason}; choose another application with --app")
    possible = spec.targets(app)
    if target is not None and target not in possible:
        raise unknown_name(f"target of {spec.name} in {app.name}", target, possible)
    return target or str(np.random.default_rng(seed).choice(possible))


def _describe_trial(fault: str, trial: FaultTrial) -> dict[str, Any]:
    failed, sent = trial.failed
    return {
        "fault": fault,
        "target": trial.target,
        "parameters": trial.parameters,
        "in effect after": None if trial.confirmed_s is None else f"{trial.confirmed_s:g} s",
        "evidence": trial.evidence or "",
        "failed requests": f"{failed} of {sent}",
        "ready again after": f"{trial.recovered_s:g} s",
    }


def _run_trial(spec: FaultSpec, target: str, host: PlatformHost, app: AppSpec, seed: int) -> FaultTrial:
    """Try the fault in a temporary folder, and remove everything at the end."""
    from faultset.collector.episodes.fault_steps import try_on_platform
    from faultset.collector.platforms.journal import Journal

    name = f"try-{seed}"
    with tempfile.TemporaryDirectory(prefix="faultset-try-") as folder, raised_interrupts():
        journal = Journal(Path(folder) / "journal.jsonl")
        platform = host.create_platform(app, Path(folder), journal, episode=name, seed=seed, step_s=1.0)
        try:
            return try_on_platform(
                spec, target, platform, seed=seed, say=lambda sentence: click.echo(sentence, err=True)
            )
        finally:
            platform.teardown()
            journal.close()
            host.await_removal([name])
