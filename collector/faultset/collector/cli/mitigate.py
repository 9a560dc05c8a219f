"""`faultset mitigate`: repair a live fault, and judge whether the application is healthy again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from faultset.core.console import DURATION, comma_separated, command, json_option
from faultset.core.errors import UsageError
from faultset.core.output import show_json, show_records
from faultset.core.printable import brief, count_text

if TYPE_CHECKING:
    from faultset.collector.campaigns.mitigations import Mitigation, MitigationCampaign
    from faultset.collector.mitigation.messages import RepairOrder
    from faultset.collector.plans.options import CampaignOptions
    from faultset.collector.plans.plan import Plan


@command(
    "mitigate",
    short_help="Inject a fault, repair it with commands, and judge whether the repair worked.",
    groups={
        "Faults": "--faults --apps",
        "Repair": "--commands --repairs --in-turn --operator --within --sustain",
        "Run": "--out --platform --jobs",
    },
    more={"Plan": "--targets --spread --seed --rate --stores", "Cluster": f"--injector {CLUSTER_FLAGS}"},
)
@click.argument("plan", required=False, metavar="[PLAN|EPISODE]", type=click.Path(path_type=Path))
@campaign_options("faults", "apps", "spread", "targets", required=False)
@click.option(
    "--commands",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the repair, one kubectl command per line.",
)
@click.option(
    "--repairs",
    metavar="NAMES",
    show_default="all; none with --commands or --operator",
    help="Built-in repairs: do-nothing, restart-target, restart-everything, true-undo, all or none.",
)
@click.option(
    "--in-turn",
    is_flag=True,
    help="Try the repairs in turn on one fault until one succeeds, instead of each in a separate episode.",
)
@click.option(
    "--operator",
    type=click.Path(path_type=Path),
    metavar="SOCKET",
    help="Unix socket of a program that repairs the application, such as the Inspect task faultset/mitigation.",
)
@click.option("--within", type=DURATION, default="90s", help="Time for the application to recover.")
@click.option("--sustain", type=DURATION, default="10s", help="Time for which it must then stay healthy.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("faultset-mitigations"), help="Folder of the results."
)
@campaign_options("platform", "seed", "rate_rps", "stores", "injector")
@click.option("-j", "--jobs", type=JobLimit(), default="auto", help="Maximum number of concurrent attempts.")
@cluster_options
@json_option
def mitigate(plan: Path | None, in_turn: bool, out: Path, jobs: int | None, as_json: bool, **options: Any) -> None:
    """Deploy an application, inject a fault, repair it with commands, and judge whether the repair worked.

    A repair succeeds if the fault's check no longer detects the fault, client requests stay healthy, and all objects
    have their original specification. PLAN is a file with one plan of a campaign; EPISODE is the folder of a collected
    episode, whose fault is injected again. Repeat the command to resume.

    \b
    Example:
      faultset mitigate --faults target-port --apps hotel --commands repair.txt
      faultset mitigate data/episodes/53f1501ed880 --repairs do-nothing,true-undo
    """
    from faultset.collector.campaigns.mitigations import mitigate as run_attempts
    from faultset.collector.campaigns.mitigations import plan_mitigations
    from faultset.collector.cli.output import raise_interrupted, show_progress

    repairs = {name: options.pop(name) for name in ("commands", "operator", "repairs", "within", "sustain")}
    request = request_options(options)
    if (plan is None) == (not request["faults"]):
        raise UsageError(
            "the fault must come from exactly one of PLAN, EPISODE, or --faults with --apps. Choose one of them"
        )
    if plan is None:
        plans = _draw_plans(request)
    elif request.get("spread"):
        raise UsageError("--spread distributes --faults over --apps; leave it out with a PLAN or an EPISODE")
    else:
        plans = _read_plan(plan, request.get("injector"), request.get("stores"))
    planned = plan_mitigations(plans, _build_orders(**repairs))
    with interrupts() as received, show_progress() as progress:
        campaign = run_attempts(
            planned,
            out=out,
            jobs=jobs,
            in_turn=in_turn,
            settings=platform_settings(**options),
            progress=progress,
            notify=lambda sentence: click.echo(sentence, err=True),
            should_stop=lambda: bool(received),
        )
    if campaign.interrupted:
        raise_interrupted(sum(not attempt.failure for attempt in campaign.mitigations), len(planned), "attempt")
    _print_campaign(campaign, as_json)
    campaign.raise_for_failures()


def _read_plan(path: Path, injector: str | None, stores: str | None) -> tuple[Plan, ...]:
    from faultset.collector.plans.plan import OWN_INJECTOR, read_plan
    from faultset.collector.plans.requests import parse_stores
    from faultset.collector.platforms.hosts import check_settings

    plan = read_plan(path)
    if stores is not None:
        plan = replace(plan, stores=parse_stores(stores, plan.platform))
    if injector is None:
        return (plan,)
    check_settings(plan.platform, ["injector"])
    return (replace(plan, injector=None if injector == OWN_INJECTOR else injector),)


def _draw_plans(options: CampaignOptions) -> tuple[Plan, ...]:
    from faultset.collector.mitigation.repairs import MITIGATION_PHASES
    from faultset.collector.plans.campaign_plans import plan_campaign
    from faultset.collector.plans.requests import make_request

    if not options["apps"]:
        raise UsageError("--faults needs --apps, but it is missing. Give the applications, for instance --apps hotel")
    fixed_options: Any = {"normal": 0, "profile": "quick", **vars(MITIGATION_PHASES)}
    request = make_request(**options | fixed_options)
    return tuple(sorted(plan_campaign(request), key=lambda plan: (plan.app, plan.fault or "")))


def _build_orders(
    commands: Path | None, operator: Path | None, repairs: str | None, within: float, sustain: float
) -> Callable[[Plan], list[RepairOrder]]:
    from faultset.collector.mitigation.repairs import (
        REPAIRS,
        build_commands_order,
        build_operator_order,
        build_repair_order,
    )

    repair_names = comma_separated(repairs) if repairs is not None else () if commands or operator else REPAIRS
    repair_names = REPAIRS if "all" in repair_names else [name for name in repair_names if name != "none"]
    limits = {"within_s": within, "sustain_s": sustain}
    user_orders = [build_commands_order(commands, **limits)] if commands else []
    user_orders += [build_operator_order(operator, **limits)] if operator else []
    # check the options before the first plan
    for name in repair_names:
        build_repair_order(name, "", **limits)
    if not user_orders and not repair_names:
        raise UsageError(
            "the command needs a repair, but none is chosen. Give a file with --commands, or names with --repairs"
        )

    def list_orders(plan: Plan) -> list[RepairOrder]:
        builtin_orders = [build_repair_order(name, plan.target or "", **limits) for name in repair_names]
        return [*user_orders, *builtin_orders]

    return list_orders


def _print_campaign(campaign: MitigationCampaign, as_json: bool) -> None:
    if as_json:
        show_json([attempt.to_record() for attempt in campaign.mitigations])
        return
    rows = [_describe_attempt(attempt) for attempt in campaign.mitigations]
    titles = {
        name: title for name, title in _COLUMNS.items() if name != "operator" or any(row["operator"] for row in rows)
    }
    show_records(rows, columns=titles)
    for sentence in describe_failed_commands(campaign):
        click.echo(sentence, err=True)
    done = [attempt for attempt in campaign.mitigations if attempt.result is not None]
    repaired_count = sum(attempt.result.success for attempt in done if attempt.result)
    click.echo(
        f"{repaired_count} of {count_text(len(done), 'attempt')} repaired the application; results in "
        f"{campaign.root}/mitigations"
    )


def describe_failed_commands(campaign: MitigationCampaign) -> list[str]:
    sentences = []
    for attempt in campaign.mitigations:
        commands = attempt.result.commands if attempt.result else ()
        failed = [command for command in commands if command.status in ("failed", "refused")]
        if failed:
            sentences.append(
                f"{attempt.plan.title}: {len(failed)} of {count_text(len(commands), 'command')} failed; first, "
                f'"{brief(failed[0].line)}": {brief(failed[0].output)}'
            )
    return sentences


_COLUMNS = {
    "app": "app",
    "fault": "fault",
    "target": "target",
    "repair": "repair",
    "outcome": "outcome",
    "mitigated_s": "TTM s",
    "repair_s": "repair s",
    "operator": "operator",
    "wrong": "still wrong",
}


def _describe_attempt(attempt: Mitigation) -> dict[str, Any]:
    result = attempt.result
    failed_checks = [check for check in result.parts if not check.ok] if result else []
    return {
        "app": attempt.plan.app,
        "fault": attempt.plan.fault,
        "target": attempt.plan.target,
        "repair": attempt.order.name,
        "outcome": "failed" if result is None else "repaired" if result.success else "not repaired",
        "operator": None
        if attempt.order.mitigator is None or result is None
        else _describe_work(result.mitigator or {}),
        "mitigated_s": result.mitigated_s if result and not result.after else None,
        "repair_s": result.repair_s if result else None,
        "wrong": attempt.failure or "; ".join(f"{check.part}: {check.detail}" for check in failed_checks),
    }


def _describe_work(record: Mapping[str, Any]) -> str:
    """Describe the final status of the repairing program."""
    return f"{record.get('status')}, {record.get('tool_calls')} calls"
