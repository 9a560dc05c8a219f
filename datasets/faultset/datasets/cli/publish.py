"""`faultset dataset publish`: a version of a dataset, copied to an object store."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

import click

from faultset.core.command_line.console import command
from faultset.core.command_line.output import json_option, show_json
from faultset.datasets.cli.versions import dataset_argument


@command("publish", short_help="Copy a version of a dataset to an object store.")
@dataset_argument
@click.argument("url")
@click.option("--version", metavar="V", help="Version to copy; the newest by default.")
@click.option("--threads", type=click.IntRange(1, 64), default=8, show_default=True, help="Files copied at once.")
@json_option
def publish(dataset: Path, url: str, version: str | None, threads: int, as_json: bool) -> None:
    """Copy a version of DATASET to URL, any that fsspec can write to: s3://, gs://, az://, file://.

    The version file comes last, so that nobody meets half a version. The same command goes on where it was
    interrupted. Versions that are there stay, and files that they have in common are not copied again.

    \b
    Example:
      faultset dataset publish data/ s3://bucket/data
      evaluate s3://bucket/data --out results
    """
    from faultset.core.command_line.progress import reported
    from faultset.datasets.remote.publishing import publish_dataset

    with reported("episodes") as progress:
        done = publish_dataset(dataset, url, version=version, threads=threads, progress=progress)
    if as_json:
        show_json(asdict(done))
        return
    state = "is published" if done.is_new else "was there already"
    click.echo(f"Version {done.version} {state} at {done.url}: {done.copied} of {done.files} files copied.")
    click.echo(f"Next:\n  faultset dataset verify {shlex.quote(done.url)}")
