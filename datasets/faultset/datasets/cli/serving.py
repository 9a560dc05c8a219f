"""`faultset dataset serve`: serve recorded episodes through the APIs of Prometheus, Jaeger and Loki."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultset.core.console import command, json_option
from faultset.core.errors import UsageError
from faultset.core.output import show_json
from faultset.datasets.cli.versions import dataset_argument, port_option, run_server, version_option

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

MAX_SERVED_S = 6 * 3600
"""Maximum length of a part of a recording; it is held in memory, about 0.8 GB per hour of the application hotel."""


@command("serve", short_help="Serve episodes through the APIs of Prometheus, Jaeger and Loki.")
@dataset_argument
@click.option(
    "--episode", "episode_id", metavar="ID", help="Episode or recording to serve.", show_default="all, each at /ID"
)
@click.option("--from", "start", metavar="TIME", help="Start of the part of a recording to serve.")
@click.option("--to", "end", metavar="TIME", help="End of that part.")
@click.option(
    "--now",
    "now_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Current time, in seconds from the start of the view.",
    show_default="its end",
)
@click.option("--live", is_flag=True, help="Let time advance from --now, and shift time stamps to the present.")
@port_option
@version_option
@json_option
def serve(
    dataset: Path,
    episode_id: str | None,
    start: str | None,
    end: str | None,
    now_s: float | None,
    live: bool,
    port: int | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Serve the telemetry of episodes and recordings on this machine, as monitoring systems would, until Ctrl-C.

    Grafana and agents that query Prometheus, Jaeger or Loki work against the printed address. They see the recorded
    time stamps up to the time --now; with --live, time advances. Labels are not served. DATASET may also be the folder
    of one episode.

    \b
    Example:
      faultset dataset serve datasets/sample --episode a5edb68659bc --port 9090
    """
    import time

    import promql_parser  # noqa: F401  reports a missing extra in one sentence

    from faultset.datasets.dataset import is_episode
    from faultset.datasets.kubectl.printing import stamp
    from faultset.datasets.serve.http_server import serving_app
    from faultset.datasets.serve.telemetry import ServedClock

    live_since_ns = time.time_ns() if live else None
    is_single = episode_id is not None or is_episode(dataset)
    find_view = find_views(dataset, version, start, end)

    def open_episode(episode: str) -> tuple[EpisodeView, ServedClock]:
        view = find_view(episode or episode_id)
        return view, ServedClock(view.context, now_s, live_since_ns=live_since_ns)

    clock = open_episode("")[1] if is_single else None

    def show_address(address: str) -> None:
        base = address if is_single else f"{address}/ID"
        if as_json:
            show_json({"address": base})
            return
        click.echo(f"Prometheus, Jaeger and Loki are served at {base}; stop with Ctrl-C.", err=True)
        if clock is not None:
            click.echo(f"The data begins at {stamp(clock.start_ns)}; it is now {stamp(clock.now_ns)}.", err=True)

    asyncio.run(run_server(serving_app(open_episode, is_single=is_single), port, show_address))


def find_views(
    dataset: Path, version: str | None, start: str | None = None, end: str | None = None
) -> Callable[[str | None], EpisodeView]:
    """Return a function that opens the view of an episode or of a part of a recording.

    The function takes an id; with None, it opens the only episode.
    """
    from faultset.datasets.dataset import episode_folder, is_episode, open_dataset
    from faultset.datasets.format.recordings import Stretch
    from faultset.datasets.recordings.window_view import WindowView
    from faultset.datasets.views import EpisodeView

    opened = None if is_episode(dataset) else open_dataset(dataset, version)

    def find(name: str | None) -> EpisodeView:
        if opened is not None and name in opened.recording_files:
            recording = opened.recording(name).view
            stretch = Stretch(recording.recording, *recording.bounds(start, end))
            if stretch.length_s > MAX_SERVED_S:
                raise UsageError(
                    f"{name} is {stretch.length_s / 3600:.1f} h long, but at most {MAX_SERVED_S // 3600} h are served; "
                    "choose a part with --from and --to"
                )
            return WindowView(recording, stretch)
        if start is not None or end is not None:
            raise UsageError("--from and --to are for recordings, but this is an episode; leave them out")
        return EpisodeView(episode_folder(dataset, name, version))

    return find
