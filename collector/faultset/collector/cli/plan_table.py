"""What `collect --dry-run` prints: the plans as a table, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

import click

from faultset.collector.plans.cost import describe_campaign
from faultset.collector.plans.plan import Plan, random_draws
from faultset.collector.platforms.hosts import open_host
from faultset.core.command_line.output import show_records


def default_jobs(platform: str, scheduler: str | None) -> int:
    """Return how many episodes run at a time by default; 1 where only a cluster could tell."""
    return open_host(platform, {}).episode_capacity() if platform == "local" and scheduler is None else 1


def show_plans(plans: Sequence[Plan], jobs: int, *, as_json: bool) -> None:
    """Print plans by application, fault and target, then how many there are, how long they take and what disk."""
    rows = [
        {
            "episode": plan.episode,
            "app": plan.app,
            "fault": plan.fault_name or f"none ({plan.no_fault_kind})",
            "target": plan.target_name,
            "onset_s": round(random_draws(plan).onset_s, 1),
            "view_s": plan.phases.view_s,
            "rate_rps": plan.rate_rps,
            "load": plan.traffic.pattern.as_text(),
            "mix": plan.mix,
            "seed": str(plan.seed),
        }
        for plan in sorted(plans, key=_order)
    ]
    show_records(rows, columns=list(rows[0]), as_json=as_json)
    click.echo(describe_campaign(plans, jobs), err=as_json)


def _order(plan: Plan) -> tuple[str, bool, str, str]:
    return plan.app, plan.fault is None, plan.fault_name or plan.no_fault_kind or "", plan.target_name or ""
