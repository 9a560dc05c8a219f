"""`faultset list faults`, `faultset list apps` and `faultset list sources`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import command, json_option
from faultset.core.output import show_records

if TYPE_CHECKING:
    from faultset.collector.faults.registry import FaultSpec

_NOOP: dict[str, Any] = {
    "fault": "noop",
    "paper": 10,
    "system_level": "",
    "fault_type": "",
    "category": "no fault",
    "gray": "",
    "dormant": "",
    "intensity": "",
    "schedules": [],
    "summary": "Run without a fault: plain, with a harmless change, or with the harmless part of a fault.",
}


def _describe_fault(name: str, fault: FaultSpec) -> dict[str, Any]:
    return {
        "fault": name,
        "paper": fault.paper_number,
        "system_level": fault.system_level,
        "fault_type": fault.fault_type,
        "category": fault.category,
        "gray": "gray" if fault.gray else "",
        "dormant": fault.dormant_reason,
        "intensity": fault.intensity,
        "schedules": ["constant", *fault.schedules],
        "summary": fault.summary,
    }


@command("faults", short_help="List the faults with their labels, or with their targets in an application.")
@click.option("--app", help="Show the services of this application that each fault can be applied to.")
@json_option
def faults(app: str | None, as_json: bool) -> None:
    """List the faults with their labels and their number in the AIOpsLab paper, or with their targets.

    Gray faults do not stop or restart any pod of their target, but clients suffer. --json also shows the range of
    each fault's strength and its schedules.

    \b
    Examples:
      faultset list faults
      faultset list faults --app hotel
    """
    from faultset.collector.apps import load_app
    from faultset.collector.faults.registry import faults as registered
    from faultset.collector.plans.fault_choice import unavailable_reason

    spec = load_app(app) if app else None
    specs = registered()
    rows = [_describe_fault(name, fault) for name, fault in specs.items()] + [dict(_NOOP)]
    if spec:
        targets = [[] if unavailable_reason(fault, spec) else list(fault.targets(spec)) for fault in specs.values()]
        rows = [row | {"targets": names} for row, names in zip(rows, [*targets, []], strict=True)]
    labels = {"system_level": "system level", "fault_type": "fault type", "category": "category", "gray": "gray"}
    rows.sort(key=lambda row: (row["paper"] or 99, row["fault"]))
    show_records(
        rows,
        columns={"paper": "no.", "fault": "fault"} | ({"targets": f"targets in {spec.name}"} if spec else labels),
        as_json=as_json,
        wrap_at=100,
    )


@command("apps")
@json_option
def apps(as_json: bool) -> None:
    """List the applications; --json adds their titles and services.

    \b
    Example:
      faultset list apps
    """
    from faultset.collector.apps import load_apps

    rows: list[dict[str, Any]] = [
        {
            "app": name,
            "title": spec.title,
            "runs": f"in namespace {spec.deployed.namespace}" if spec.deployed else "where collect deploys it",
            "services": list(spec.services),
            "mixes": list(spec.mixes),
            "default_mix": spec.default_mix,
        }
        for name, spec in load_apps().items()
    ]
    if not as_json:
        rows = [row | {"services": len(row["services"])} for row in rows]
    headings = {"app": "app", "services": "services", "mixes": "mixes", "default_mix": "default mix", "runs": "runs"}
    show_records(rows, columns=headings, as_json=as_json)


@command("sources")
@json_option
def sources(as_json: bool) -> None:
    """List the additional sources of telemetry that a campaign can use.

    \b
    Example:
      faultset list sources --json
    """
    from faultset.collector.sources.recorder import load_sources
    from faultset.core.output import show_records

    rows = [
        {
            "source": name,
            "records": spec.table if spec.added_table else f"rows of {spec.table}",
            "columns": [
                f"{column.name} ({column.unit})" if column.unit else column.name
                for column in (spec.added_table.columns if spec.added_table else ())
            ]
            or [f"{role.metric} ({role.unit})" for role in spec.metric_roles],
            "summary": spec.summary,
            "from": spec.origin.partition(" of ")[2],
        }
        for name, spec in load_sources().items()
    ]
    if not rows and not as_json:
        click.echo("no source is installed; docs/developing/source.md explains how to write one", err=True)
        return
    show_records(rows, columns=["source", "records", "columns", "summary", "from"], as_json=as_json)
