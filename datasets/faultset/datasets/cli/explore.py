"""`faultset dataset explore`: a page to look at episodes in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from faultset.core.command_line.console import OUTPUT_FILE, command
from faultset.core.command_line.output import json_option, show_json
from faultset.core.errors import UsageError
from faultset.datasets.cli.versions import dataset_argument, version_option


@command()
@dataset_argument
@click.option("--episode", "episodes", metavar="ID", multiple=True, help="Episode to show; all by default. Repeatable.")
@click.option("--out", type=OUTPUT_FILE, help="File to write.  [default: explorer.html]")
@click.option("--without-truth", is_flag=True, help="Leave the labels out, for people who are to find the faults.")
@click.option("--serve", is_flag=True, help="Write no file; serve the pages on this machine until Ctrl-C.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to serve on.  [default: a free one]")
@version_option
@json_option
def explore(
    dataset: Path,
    episodes: tuple[str, ...],
    out: Path | None,
    without_truth: bool,
    serve: bool,
    port: int | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Make a page to look at the episodes of DATASET: one HTML file that needs no network.

    It shows client requests, the health of services, metrics, logs, traces, events and object states on one time axis.
    The truth can be switched off, to diagnose episodes yourself and be scored. With --serve nothing is written, and
    episodes are read when they are opened; only somebody who has the printed address can open them.

    \b
    Example:
      faultset dataset explore faultset-data/
      faultset dataset explore faultset-data/ --episode 01084746c57a --out one.html
    """
    from faultset.core.command_line.progress import reported
    from faultset.datasets import open_dataset

    if serve and episodes:
        raise UsageError("--serve shows every episode; leave --episode out, or --serve")
    if port is not None and not serve:
        raise UsageError("--port is for --serve; add --serve, or leave --port out")
    opened = open_dataset(dataset, version)
    if serve:
        import asyncio

        from faultset.datasets.explorer.server import serve as run

        def started(address: str) -> None:
            if as_json:
                show_json({"address": address})
                return
            click.echo(f"{address}\nOpen this address in a browser on this machine; Ctrl-C ends the server.", err=True)

        asyncio.run(run(opened, port=port or 0, truth=not without_truth, started=started))
        return
    from faultset.datasets.explorer.page import write_page

    out = out or Path("explorer.html")
    with reported("episodes") as progress:
        size = write_page(opened, out, episodes=episodes or None, truth=not without_truth, progress=progress)
    shown = sorted(set(episodes)) if episodes else list(opened.episodes)
    if as_json:
        show_json({"file": str(out), "bytes": size, "episodes": shown})
        return
    number = len(shown)
    noun = "episode" if number == 1 else "episodes"
    click.echo(f"{number} {noun} in {out}, {size / 1e6:.1f} MB. Open it in a browser.")
