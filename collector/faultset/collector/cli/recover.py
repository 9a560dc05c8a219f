"""`faultset recover`: clean up after a killed `collect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.collector.cli.cluster import platform_settings
from faultset.core.console import command, json_option
from faultset.core.output import show_json
from faultset.core.printable import count_text

if TYPE_CHECKING:
    from faultset.collector.campaigns.output_folder import RemovalResult
    from faultset.collector.platforms.hosts import PlatformHost


@command("recover", short_help="Clean up after a killed `collect`.")
@click.option(
    "--out",
    type=click.Path(),
    default="faultset-data",
    show_default=True,
    help="Folder or URL of the dataset; for a URL only this machine's leftovers are removed.",
)
@click.option(
    "--platform",
    default="local",
    show_default=True,
    help="local or kubernetes; with kubernetes, also search the whole cluster.",
)
@click.option("--context", help="Context of the kubeconfig; by default the current one.")
@json_option
@click.option(
    "--break-lock",
    is_flag=True,
    help="Also clean up after a run on another machine or in another container; make sure that it has ended.",
)
@click.option("--telemetry", is_flag=True, help="Also remove the Prometheus and Jaeger that doctor installed.")
def recover(out: str, platform: str, context: str | None, telemetry: bool, break_lock: bool, as_json: bool) -> None:
    """Clean up after a killed `collect`: in a dataset's folder, on this machine and on a cluster.

    On the embedded platform every process ends with the collector, so only files remain. On a cluster the command
    finds the objects of faultset by their labels, and removes nothing else. Running campaigns, including those on
    other machines, are not touched. Objects whose origin is uncertain are listed and kept. You can repeat the command.

    \b
    Example:
      faultset recover --out data/
      faultset recover --platform kubernetes
    """
    from faultset.collector.campaigns.destinations import open_destination
    from faultset.collector.campaigns.output_folder import RemovalResult, check_output_folder
    from faultset.collector.platforms.hosts import TelemetryInstaller, open_host
    from faultset.core.errors import DataError, UsageError
    from faultset.core.printable import printable

    host = open_host(platform, platform_settings(context=context))
    destination = open_destination(out)
    folder = destination.folder
    check_output_folder(folder)
    removal, refusal = RemovalResult(), None
    is_named = click.get_current_context().get_parameter_source("out") != click.core.ParameterSource.DEFAULT
    if folder.exists():
        try:
            removal = _clean_folder(folder, platform, host, break_lock=break_lock)
        except DataError as error:
            refusal = error
    elif platform == "local" and destination.is_shared and is_named:
        # on a cluster, orphans are removed even if the folder is missing
        refusal = DataError(f"folder {printable(str(folder))} does not exist; give a dataset with --out")
    orphans = host.remove_orphans()
    if telemetry:
        if not isinstance(host, TelemetryInstaller):
            raise UsageError(f"--telemetry does not apply to platform {platform}; omit it, or choose another platform")
        orphans += host.remove_telemetry()
    if as_json:
        show_json({"episodes": removal.episodes, "orphans": orphans, "left": removal.remaining})
    elif removal.episodes or orphans or not (removal.remaining or refusal):
        episodes = removal.episodes
        sentences = [f"removed the remains of {count_text(len(episodes), 'episode')}"] if episodes else []
        sentences += [f"removed {', '.join(orphans)}"] if orphans else []
        click.echo("; ".join(sentences) or "nothing to remove")
    if refusal:
        raise refusal
    if removal.remaining:
        raise DataError("; ".join(removal.remaining))


def _clean_folder(folder: Path, platform: str, host: PlatformHost, *, break_lock: bool) -> RemovalResult:
    """Clean up after killed runs, in the folder of a dataset and on the platforms of their episodes."""
    from faultset.collector.campaigns.output_folder import remove_abandoned
    from faultset.collector.platforms.hosts import open_host
    from faultset.core.files import translate_resource_errors
    from faultset.core.locks import lock_folder

    def notify(sentence: str) -> None:
        click.echo(sentence, err=True)

    with translate_resource_errors(folder), lock_folder(folder, "recover", take_over=break_lock, notify=notify):
        return remove_abandoned(
            folder, lambda name: host if name == platform else open_host(name), take_over=break_lock
        )
