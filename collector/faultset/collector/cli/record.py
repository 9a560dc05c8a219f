"""`faultset record`: turn a past window of running monitoring servers into an episode."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import click

from faultset.core.console import command, list_option
from faultset.core.errors import UsageError
from faultset.datasets.cli.exchange import import_files, next_commands, show_cost


@command(
    "record",
    short_help="Record a past window from Prometheus, Jaeger, Tempo, Loki and Kubernetes.",
    groups={
        "Servers": "--prometheus --jaeger --tempo --loki --kubernetes",
        "Selection": "--from --to --namespace",
        "Episode": "--out --at --incidents",
    },
    more={
        "Access and load": "--context --tenant --max-rate",
        "Finer selection": "--match --roles --log-selector",
        "Content": "--mapping --redact",
    },
)
@click.option("--prometheus", metavar="URL", help="Prometheus, or a server with its API.")
@click.option("--jaeger", metavar="URL", help="Jaeger's query API; excludes --tempo.")
@click.option("--tempo", metavar="URL", help="Tempo's API.")
@click.option("--loki", metavar="URL", help="Loki's API.")
@click.option("--kubernetes", is_flag=True, help="Record objects and events of the kubeconfig's cluster.")
@click.option("--context", help="Context of the kubeconfig.", show_default="current context")
@click.option("--tenant", help="Tenant, sent as X-Scope-OrgID.", show_default="none")
@click.option(
    "--max-rate",
    type=click.FloatRange(min=0.01, max=1000),
    default=5.0,
    metavar="NUMBER",
    help="Requests per second to all servers together.",
)
@click.option("--from", "start", required=True, metavar="TIME", help="Start, such as 2026-03-01T10:00:00Z.")
@click.option("--to", "end", required=True, metavar="TIME", help="End.")
@click.option("--namespace", help="Kubernetes namespace to record.", show_default="all")
@click.option("--match", "matchers", metavar="MATCHERS", help="PromQL matchers, such as 'job=\"shop\"'.")
@list_option("--roles", help="Roles of the metrics to record, such as cpu,latency.", show_default="all")
@click.option("--log-selector", metavar="LOGQL", help="Loki streams.", show_default="the namespace")
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Dataset folder to create."
)
@click.option("--at", metavar="TIME", help="Time of an alarm: cut the episode around it.")
@click.option("--incidents", metavar="FILE", help="Times and causes of incidents, one episode each.")
@click.option("--mapping", metavar="FILE", help="Names of services, and roles of metrics.")
@click.option("--redact/--no-redact", default=True, help="Hide passwords and tokens in the episode.")
def record(kubernetes: bool, max_rate: float, start: str, end: str, out: Path, **options: Any) -> None:
    """Record a past window of telemetry as an episode, through the APIs of running servers.

    Without --at and --incidents the window becomes one episode without a fault. Repeat an interrupted command to
    continue it. Put the user name and password in the URL, or a token in FAULTSET_SERVER_TOKEN, where SERVER is
    PROMETHEUS, JAEGER, TEMPO or LOKI. For Prometheus and Jaeger, NAMESPACE/SERVICE:PORT instead of a URL connects
    through the kubeconfig.

    \b
    Example:
      faultset record --prometheus http://localhost:9090 --from 2026-03-01T10:00Z --to 2026-03-01T11:00Z --out incident/
    """
    from faultset.collector.monitoring.servers import SPOOL_SUFFIX, Selection, Servers, check_window, fetch_answers
    from faultset.core.output import report_progress
    from faultset.datasets.format.versions import list_versions
    from faultset.datasets.imports.telemetry.run import TelemetryOptions, check_options
    from faultset.datasets.metrics.roles import parse_roles

    names = ("prometheus", "jaeger", "tempo", "loki", "context", "tenant")
    servers = Servers(uses_cluster=kubernetes, **{name: options.pop(name) for name in names})
    if servers.jaeger and servers.tempo:
        raise UsageError("--jaeger and --tempo cannot be combined; give the one that has the traces")
    if out.is_dir() and list_versions(out):
        raise UsageError(f"{out} already holds a dataset; choose another --out")
    spool = out.parent / f"{out.name}{SPOOL_SUFFIX}"
    window = _read_time(start, "--from"), _read_time(end, "--to")
    check_window(*window, time.time_ns())
    episode = {name: options.pop(name) for name in ("at", "incidents", "mapping", "redact")}
    check_options(TelemetryOptions(**episode))
    parse_roles(options["roles"])
    selection = Selection(start_ns=window[0], end_ns=window[1], **options)
    show_cost(f"{(window[1] - window[0]) / 60e9:.0f} min of telemetry, at most {max_rate:g} requests per second")
    with report_progress("% fetched") as progress:
        folders = fetch_answers(
            servers, selection, spool, requests_per_s=max_rate, progress=progress, announce=show_cost
        )
    app = {"app": options["namespace"]} if options["namespace"] else {}
    import_files(folders, out, {**episode, **app, "window": window, "dry_run": False}, workers=None, skip_bad=False)
    shutil.rmtree(spool, ignore_errors=True)
    click.echo(f"Recorded in {out}.\n{next_commands(out, episode)}")


def _read_time(text: str, option: str) -> int:
    from faultset.datasets.imports.telemetry.times import parse_time

    time_ns = parse_time(text)
    if time_ns is None or time_ns <= 0:
        raise UsageError(f'{option} must be a time such as 2026-03-01T10:00:00Z, got "{text}"')
    return time_ns
