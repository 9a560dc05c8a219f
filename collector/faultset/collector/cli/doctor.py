"""`faultset doctor`: can this machine, or this cluster, run episodes?"""

from __future__ import annotations

from typing import Any

import click

from faultset.collector.cli.cluster import cluster_options, cluster_settings
from faultset.core.console import command, json_option


@command("doctor")
@click.option("--platform", default="local", show_default=True, help="local or kubernetes.")
@cluster_options
@click.option("--install-telemetry", is_flag=True, help="First give the cluster a small Prometheus and Jaeger.")
@json_option
def doctor(
    platform: str,
    context: str | None,
    prometheus_url: str | None,
    jaeger_url: str | None,
    image: str | None,
    install_telemetry: bool,
    as_json: bool,
) -> None:
    """Check one by one what episodes need, and say how to mend what is missing.

    \b
    Example:
      faultset doctor
      faultset doctor --platform kubernetes --install-telemetry
    """
    from faultset.collector.platforms import PLATFORMS
    from faultset.collector.platforms.api.requirements import unmet
    from faultset.core.console import show_records
    from faultset.core.errors import PlatformError, UsageError
    from faultset.core.suggestions import unknown_name

    if platform not in PLATFORMS:
        raise unknown_name("platform", platform, PLATFORMS)
    settings = cluster_settings(platform, context, prometheus_url, jaeger_url, image)
    if install_telemetry and platform != "kubernetes":
        raise UsageError("--install-telemetry is for --platform kubernetes, but the platform is local; add it")
    rows = _rows(platform, settings, install_telemetry)
    show_records(rows, columns={"check": "check", "ok": "ok", "found": "found", "remedy": "remedy"}, as_json=as_json)
    wrong = unmet(rows)
    if wrong:
        raise PlatformError(f"{len(wrong)} of {len(rows)} checks failed; first: {wrong[0]['check']}")
    if not as_json:
        place = "this machine can run the embedded platform" if platform == "local" else "this cluster can run episodes"
        lacking = ", ".join(row["check"] for row in rows if not row["ok"])
        click.echo(f"{place}; not all is there: {lacking}" if lacking else place)


def _rows(platform: str, settings: dict[str, str], install_telemetry: bool) -> list[dict[str, Any]]:
    if platform == "local":
        from faultset.collector.platforms.local.checks import checks

        return checks()
    from faultset.collector.platforms.kubernetes.api.client import Api
    from faultset.collector.platforms.kubernetes.doctor.checks import check_cluster
    from faultset.collector.platforms.kubernetes.telemetry.stack_objects import install_telemetry as install

    api = Api(context=settings.pop("context", None), patience_s=10.0)
    if install_telemetry:
        install(api)
        click.echo("installed Prometheus, Jaeger and kube-state-metrics; recover --telemetry removes them", err=True)
    return check_cluster(api, **settings)
