"""`faultset dataset serve`: recorded episodes behind the APIs of Prometheus, Jaeger and Loki."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json
from faultset.datasets.cli.versions import dataset_argument, version_option


@command("serve", short_help="Serve episodes through the APIs of Prometheus, Jaeger and Loki.")
@dataset_argument
@click.option("--episode", "episode_id", metavar="ID", help="Episode to serve.", show_default="all, each at /ID")
@click.option(
    "--now",
    "now_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Current time, in seconds from the start of the view.",
    show_default="its end",
)
@click.option("--live", is_flag=True, help="Let time pass from --now on, and shift time stamps to the present.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to serve on.", show_default="a free one")
@version_option
@json_option
def serve(
    dataset: Path,
    episode_id: str | None,
    now_s: float | None,
    live: bool,
    port: int | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Serve the telemetry of episodes on this machine, as monitoring systems would, until Ctrl-C.

    Grafana and agents that query Prometheus, Jaeger or Loki work against the printed address. They see the recorded
    time stamps up to the time --now; with --live, time passes. Labels are not served. DATASET may also be the folder of
    one episode.

    \b
    Example:
      faultset dataset serve datasets/sample --episode a5edb68659bc --port 9090
    """
    import asyncio
    import time

    import promql_parser  # noqa: F401  reports a missing extra in one sentence

    from faultset.datasets.dataset import episode_folder, is_episode, open_dataset
    from faultset.datasets.kubectl.printing import stamp
    from faultset.datasets.serve.clock import ServedClock
    from faultset.datasets.serve.http_server import serve as run
    from faultset.datasets.views import EpisodeView

    live_since_ns = time.time_ns() if live else None
    is_single = episode_id is not None or is_episode(dataset)
    if is_single:
        find_view = {"": EpisodeView(episode_folder(dataset, episode_id, version))}.__getitem__
    else:
        find_view = open_dataset(dataset, version).view

    def open_episode(episode: str) -> tuple[EpisodeView, ServedClock]:
        view = find_view(episode)
        return view, ServedClock(view.context, now_s, live_since_ns=live_since_ns)

    clock = open_episode("")[1] if is_single else None

    def show_address(address: str) -> None:
        base = address if is_single else f"{address}/EPISODE"
        if as_json:
            show_json({"address": base})
            return
        click.echo(f"Prometheus, Jaeger and Loki are served at {base}; stop with Ctrl-C.", err=True)
        if clock is not None:
            click.echo(f"Data begins at {stamp(clock.start_ns)}; it is {stamp(clock.now_ns)}.", err=True)

    asyncio.run(run(open_episode, is_single=is_single, port=port or 0, started=show_address))
