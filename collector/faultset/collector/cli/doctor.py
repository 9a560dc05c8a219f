"""`faultset doctor`: check whether this machine or a cluster can run episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from faultset.collector.cli.cluster import campaign_options, cluster_options, platform_settings
from faultset.core.console import command, complete_names, json_option
from faultset.core.output import show_records

if TYPE_CHECKING:
    from faultset.collector.platforms.hosts import PlatformHost, Requirement


@command("doctor")
@click.option("--platform", default="local", show_default=True, help="local or kubernetes.")
@campaign_options("injector")
@cluster_options
@click.option("--install-telemetry", is_flag=True, help="Install a small Prometheus and Jaeger in the cluster first.")
@click.option(
    "--fault",
    metavar="NAME",
    shell_complete=complete_names("faultset.faults"),
    help="Only inject this fault into a simulated application, and show its effect.",
)
@click.option("--app", default="hotel", show_default=True, help="Application for --fault: a name or a path.")
@json_option
def doctor(platform: str, install_telemetry: bool, fault: str | None, app: str, as_json: bool, **options: Any) -> None:
    """Check whether episodes can run here, and explain how to fix what is missing.

    \b
    Example:
      faultset doctor
      faultset doctor --platform kubernetes --install-telemetry
      faultset doctor --platform kubernetes --injector chaos-mesh
      faultset doctor --fault target-port --app hotel
    """
    if fault:
        _try_fault(fault, app, as_json)
        return
    from faultset.collector.platforms.hosts import TelemetryInstaller, open_host, unmet
    from faultset.core.errors import PlatformError, UsageError

    settings = platform_settings(**options)
    host = open_host(platform, settings)
    if install_telemetry:
        if not isinstance(host, TelemetryInstaller):
            raise UsageError(f"--install-telemetry does not apply to platform {platform}; leave it out")
        click.echo(host.install_telemetry(), err=True)
    rows = host.requirements()
    if not unmet(rows):
        rows.append(_check_faults(host))
    columns = {"check": "check", "ok": "ok", "found": "found", "remedy": "remedy"}
    show_records([vars(row) for row in rows], columns=columns, as_json=as_json)
    if failed_checks := unmet(rows):
        raise PlatformError(f"{len(failed_checks)} of {len(rows)} checks failed; first: {failed_checks[0].check}")
    if not as_json:
        missing = ", ".join(row.check for row in rows if not row.ok)
        sentence = f"platform {platform} can run episodes here"
        click.echo(f"{sentence}; missing: {missing}" if missing else sentence)


def _try_fault(name: str, app: str, as_json: bool) -> None:
    from faultset.collector.apps import load_app
    from faultset.collector.faults.registry import get_fault
    from faultset.collector.testing.fault import try_fault
    from faultset.core.output import show_records

    rows = try_fault(get_fault(name), load_app(app))
    show_records(rows, columns=["target", "parameters", "calls", "evidence"], as_json=as_json)
    if not as_json:
        confirmed = sum(bool(row["evidence"]) for row in rows)
        click.echo(
            f"undone on all {len(rows)} targets; confirmed on {confirmed} (simulated pods run no programs)", err=True
        )


def _check_faults(host: PlatformHost) -> Requirement:
    from faultset.collector.faults.registry import faults, unsupported_faults
    from faultset.collector.platforms.hosts import Requirement

    specs = faults()
    reasons: dict[str, list[str]] = {}
    for name, reason in unsupported_faults(host, specs.values()).items():
        reasons.setdefault(reason, []).append(name)
    summary = f"{len(specs) - sum(map(len, reasons.values()))} of {len(specs)} can be injected"
    summary += "".join(f"; not {', '.join(names)}: {reason}" for reason, names in reasons.items())
    remedy = "--faults all skips the others; docs/how-to/kubernetes.md lists their requirements"
    return Requirement("faults", not reasons, summary, remedy, needed=False)
