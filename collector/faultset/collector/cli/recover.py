"""`faultset recover`: undo and remove what a killed `collect` left."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.collector.cli.cluster import cluster_settings
from faultset.core.console import command


@command("recover")
@click.option("--out", type=click.Path(path_type=Path), default=Path("faultset-data"), show_default=True)
@click.option("--platform", default="local", show_default=True, help="kubernetes: look through the whole cluster too.")
@click.option("--context", help="Context of the kubeconfig; its current one when left out.")
@click.option("--telemetry", is_flag=True, help="Also remove the Prometheus and Jaeger that doctor installed.")
def recover(out: Path, platform: str, context: str | None, telemetry: bool) -> None:
    """Undo and remove what a killed `collect` left in a dataset's folder, on this machine and on a cluster.

    On the embedded platform every process dies with the collector, so that only files are left. On a cluster it finds
    what is ours by its labels and removes nothing else. It may be run again without harm, and leaves running
    campaigns alone, also those of other machines.

    \b
    Example:
      faultset recover --out data/
      faultset recover --platform kubernetes
    """
    from faultset.collector.campaigns.campaign import check_root, remove_abandoned
    from faultset.collector.platforms import open_site
    from faultset.core.errors import UsageError

    settings = cluster_settings(platform, context, None, None, None)
    if telemetry and platform != "kubernetes":
        raise UsageError("--telemetry is for --platform kubernetes, but the platform is local; add it")
    site = open_site(platform, settings)
    check_root(out)
    removed = remove_abandoned(out, lambda name: site if name == platform else open_site(name))
    strays = site.remove_strays()
    if telemetry:
        from faultset.collector.platforms.kubernetes.api.client import Api
        from faultset.collector.platforms.kubernetes.telemetry.stack_objects import remove_telemetry

        strays += remove_telemetry(Api(context=context))
    said = [f"removed what was left of {len(removed)} episodes"] if removed else []
    said += [f"removed {', '.join(strays)}"] if strays else []
    click.echo("; ".join(said) or "nothing was left behind")
