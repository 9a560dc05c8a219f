"""`faultset dataset show`, `episodes`, `verify`, `versions`, `diff` and `explore`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultset.core.console import OUTPUT_FILE, command, json_option, list_option
from faultset.core.errors import DataError, UsageError
from faultset.core.output import show_json, show_records
from faultset.core.printable import count_text, list_counts
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from aiohttp import web

    from faultset.datasets.dataset import Dataset, Episode
    from faultset.datasets.recordings.recording import Recording


dataset_argument = click.argument("dataset", type=click.Path(path_type=Path), metavar="DATASET")
location_argument = click.argument("dataset", metavar="DATASET")
"""A folder or a URL that fsspec supports."""
_VERDICTS = ("manifest", "latent", "silent", "unknown", "none")
_WRAP_AT = 100
version_option = click.option("--version", metavar="VERSION", help="Version of the dataset.", show_default="the newest")
port_option = click.option("--port", type=click.IntRange(1, 65535), help="Port to serve on.", show_default="a free one")


@command()
@location_argument
@version_option
@json_option
def show(dataset: str, version: str | None, as_json: bool) -> None:
    """Show the content of a dataset: episodes by application and fault, tables, splits.

    DATASET is a folder or a URL that fsspec supports.

    \b
    Example:
      faultset dataset show faultset-data/
      faultset dataset show s3://bucket/data
    """
    from faultset.datasets.remote.file_systems import open_labels

    with open_labels(dataset, version) as opened:
        _show(opened, dataset, as_json)


_SUBSETS = {side: side for side in ("train", "validation", "test")}


def _show(opened: Dataset, dataset: str, as_json: bool) -> None:
    episodes, tables, splits = _count_episodes(opened), _measure_tables(opened), _count_splits(opened)
    recordings, recording_splits = list_recording_rows(opened), list_split_rows(opened)
    if as_json:
        show_json(
            {
                "dataset": dataset,
                "version": opened.version,
                "created": opened.created,
                "episodes": episodes,
                "tables": tables,
                "splits": splits,
                "recordings": recordings,
                "recording_splits": recording_splits,
                "provenance": dict(opened.provenance),
            }
        )
        return
    counts = list_counts(episode=len(opened.episodes), recording=len(recordings))
    click.echo(f"{dataset} version {opened.version} of {opened.created}: {counts}")
    if opened.provenance.get("synthetic"):
        click.echo("The data is synthetic.")
    click.echo()
    if recordings:
        show_records(recordings, columns={name: name.replace("void_min", "void, min") for name in recordings[0]})
        click.echo()
        show_records(recording_splits, columns={"split": "split", "key": "separated by"} | _SUBSETS)
        click.echo(f"To list their incidents: faultset dataset episodes {dataset}")
        click.echo()
    apps = _count_by_app(episodes)
    if apps or not recordings:
        show_records(apps, columns=list(apps[0]) if apps else ["app"])
        click.echo()
        show_records(
            _list_fault_rows(episodes), columns={"episodes": "episodes each", "faults": "fault"}, wrap_at=_WRAP_AT
        )
        click.echo(f"To list episodes with their ids: faultset dataset episodes {dataset}")
        click.echo()
    show_records(tables, columns=("table", "rows", "bytes"))
    if not splits:
        return
    click.echo()
    show_records(splits, columns={"split": "split", "key": "separated by", "train": "train", "test": "test"})


@command(short_help="List the episodes of a dataset, and the incidents of its recordings.")
@location_argument
@list_option("--faults", help='Faults to list; "none" lists episodes without a fault.')
@list_option("--apps", help="Applications to list.")
@list_option("--verdicts", help="Verdicts to list.")
@version_option
@json_option
def episodes(dataset: str, version: str | None, as_json: bool, **conditions: tuple[str, ...]) -> None:
    """List the episodes of a dataset, and the incidents of its recordings: id, application, fault, target, verdict,
    onset and duration.

    DATASET is a folder or a URL that fsspec supports.

    \b
    Example:
      faultset dataset episodes faultset-data/
      faultset dataset episodes core-2 --faults cpu-hog,pod-kill --apps hotel
    """
    from faultset.datasets.derivation import EpisodeFilter, select_episodes
    from faultset.datasets.remote.file_systems import open_labels

    with open_labels(dataset, version) as opened:
        selected = select_episodes(opened, EpisodeFilter(**conditions))
        records = [_describe_episode(opened[episode]) for episode in selected if episode in opened]
        records += incident_records(opened, selected, conditions)
    columns = {"episode": "episode", "app": "app", "fault": "fault", "target": "target", "verdict": "verdict"}
    columns |= {"onset_s": "onset, s", "duration_s": "duration, s"}
    if records or as_json:
        show_records(records, columns=columns, as_json=as_json)
    if not as_json:
        click.echo(count_text(len(records), "episode"), err=True)


@command(short_help="Check the files and labels of a version, and that no view leaks the answer.")
@location_argument
@version_option
@click.option("--shortcuts", is_flag=True, help="Test whether properties other than telemetry values leak the answer.")
@json_option
def verify(dataset: str, version: str | None, shortcuts: bool, as_json: bool) -> None:
    """Check files, schemas, windows and labels, and that no view leaks the answer; exit with 3 on errors.

    With --shortcuts, train small models on file sizes, row counts, event reasons, errors, image tags and rollout timing
    instead, and compare their scores with chance. LEAK marks properties that reveal faults or targets.

    DATASET is a folder or a URL that fsspec supports; the version at a URL is copied to a temporary folder.

    \b
    Example:
      faultset dataset verify faultset-data/ --version 1.0.0
      faultset dataset verify faultset-data/ --shortcuts
    """
    from faultset.core.output import report_progress
    from faultset.datasets.checks.verification import verify as verify_dataset
    from faultset.datasets.remote.file_systems import local_folder

    with ExitStack() as stack:
        with report_progress("episodes copied") as progress:
            root = stack.enter_context(local_folder(dataset, version, progress))
        if shortcuts:
            from faultset.datasets import open_dataset

            _show_shortcuts(open_dataset(root, version), as_json)
            return
        with report_progress("episodes") as progress:
            findings = verify_dataset(root, version, progress=progress)
    columns = ("severity", "check", "place", "message")
    records = [{"place": finding.file or finding.episode, **asdict(finding)} for finding in findings]
    if findings or as_json:
        show_records(records, columns=columns, as_json=as_json)
    errors = sum(finding.severity == "error" for finding in findings)
    if errors:
        raise DataError(f"{dataset} has {count_text(errors, 'error')}; see the list above and restore the files")
    if not as_json:
        click.echo("No errors.")


def _show_shortcuts(dataset: Dataset, as_json: bool) -> None:
    from faultset.core.output import report_progress
    from faultset.datasets.checks.shortcuts import measure_shortcuts

    with report_progress("episodes") as progress:
        shortcuts = measure_shortcuts(dataset, progress=progress)
    if not shortcuts and not as_json:
        click.echo(
            "Too few episodes: at least five groups with a fault and five without one are needed, or five chunks of "
            "recordings with each."
        )
        return
    verdicts = {True: "LEAK", False: ""}
    records: list[dict[str, Any]] = []
    for shortcut in shortcuts:
        rounded = {name: round(getattr(shortcut, name), 3) for name in ("score", "standard_error", "chance")}
        records.append(asdict(shortcut) | rounded | {"verdict": verdicts[shortcut.leaks]})
    columns = ("task", "properties", "score", "standard_error", "chance", "verdict")
    show_records(records, columns=columns, as_json=as_json)
    if not as_json:
        leaks = [shortcut.properties for shortcut in shortcuts if shortcut.leaks]
        names = ", ".join(dict.fromkeys(leaks))
        click.echo(f"Leaks: {names}." if leaks else "No leaks.")


@command()
@location_argument
@json_option
def versions(dataset: str, as_json: bool) -> None:
    """List the versions of a dataset, oldest first.

    DATASET is a folder or a URL that fsspec supports.

    \b
    Example:
      faultset dataset versions faultset-data/
    """
    from faultset.datasets.remote.file_systems import list_version_files

    records = [
        {
            "version": version_file.version,
            "created": version_file.created,
            "episodes": len(version_file.episodes),
            "recordings": len(version_file.recordings),
            "bytes": sum(file.bytes for file in version_file.paths().values()),
            "schema_version": version_file.schema_version,
        }
        for version_file in list_version_files(dataset)
    ]
    headings = {"version": "version", "created": "created", "episodes": "episodes", "bytes": "bytes"}
    show_records(records, columns=headings | {"schema_version": "schema"}, as_json=as_json)


@command()
@dataset_argument
@click.argument("old", metavar="V1")
@click.argument("new", metavar="V2")
@json_option
def diff(dataset: Path, old: str, new: str, as_json: bool) -> None:
    """Show which episodes were added, removed or changed from version V1 to V2.

    \b
    Example:
      faultset dataset diff faultset-data/ 1.0.0 1.1.0
    """
    from faultset.datasets import compare_versions

    changes = compare_versions(dataset, old, new)
    if as_json or changes:
        columns = ("change", "episode", "files")
        show_records(changes, columns=columns, as_json=as_json)
    else:
        click.echo(f"{old} and {new} hold the same episodes.")


def _describe_episode(episode: Episode) -> dict[str, Any]:
    label = episode.label
    return {
        "episode": episode.id,
        "app": episode.context.app,
        "fault": label.fault or f"none ({label.no_fault_kind})",
        "target": ", ".join(label.targets),
        "verdict": label.verdict,
        "onset_s": _round_to_tenths(label.seconds_into_view(label.onset_ns)),
        "duration_s": _round_to_tenths(label.seconds_into_view(label.view_end_ns)),
    }


def _round_to_tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _count_episodes(opened: Dataset) -> list[dict[str, Any]]:
    records = map(_describe_episode, opened)
    counts = Counter((record["app"], record["fault"], record["verdict"]) for record in records)
    return [
        {"app": app, "fault": fault, "verdict": verdict, "episodes": number}
        for (app, fault, verdict), number in sorted(counts.items())
    ]


def _count_by_app(episodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Count episodes per application, with a column per verdict; the verdict "none" becomes the column "no fault"."""
    verdicts = sorted({row["verdict"] for row in episodes}, key=_VERDICTS.index)
    counts: dict[str, dict[str, int]] = {}
    for row in episodes:
        by_verdict = counts.setdefault(row["app"], {"episodes": 0, **dict.fromkeys(verdicts, 0)})
        by_verdict["episodes"] += row["episodes"]
        by_verdict[row["verdict"]] += row["episodes"]
    return [
        {"app": app} | {"no fault" if name == "none" else name: number for name, number in by_verdict.items()}
        for app, by_verdict in counts.items()
    ]


def _list_fault_rows(episodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group faults with the same number of episodes."""
    counts: Counter[str] = Counter()
    for row in episodes:
        counts[row["fault"]] += row["episodes"]
    groups: dict[int, list[str]] = {}
    for fault, number in sorted(counts.items()):
        groups.setdefault(number, []).append(fault)
    return [{"episodes": number, "faults": groups[number]} for number in sorted(groups, reverse=True)]


def _measure_tables(opened: Dataset) -> list[dict[str, Any]]:
    rows: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for files in opened.version_file.units().values():
        for path, record in files.items():
            table = "/".join(path.removesuffix(".parquet").split("/")[-2:])
            if record.rows is not None:
                rows[table] += record.rows
                sizes[table] += record.bytes
    return [{"table": table, "rows": rows[table], "bytes": sizes[table]} for table in rows]


def _count_splits(opened: Dataset) -> list[dict[str, Any]]:
    return [
        {"split": name, "key": split.key, "train": len(split.train), "test": len(split.test)}
        for name, split in opened.version_file.splits.items()
    ]


@command()
@dataset_argument
@list_option("--episodes", metavar="IDS", help="Episodes and recordings to show.", show_default="all")
@click.option("--out", type=OUTPUT_FILE, help="File to write.", default="explorer.html", show_default=True)
@click.option(
    "--results",
    metavar="FOLDER",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of an evaluation whose answers are shown for each episode.",
)
@click.option("--without-truth", is_flag=True, help="Omit the labels, so that readers can diagnose episodes.")
@click.option("--serve", is_flag=True, help="Serve the pages on this machine until Ctrl-C instead of writing a file.")
@port_option
@version_option
@json_option
def explore(
    dataset: Path,
    episodes: tuple[str, ...],
    out: Path,
    results: Path | None,
    without_truth: bool,
    serve: bool,
    port: int | None,
    version: str | None,
    as_json: bool,
) -> None:
    """Write an HTML page that shows the episodes of DATASET; it needs no network.

    It shows client requests, service health, metrics, logs, traces, events and object states on one time axis. Hide the
    truth to diagnose episodes yourself and be scored. With --serve no file is written, and episodes are read when they
    are opened; only users who have the printed address can open them.

    \b
    Example:
      faultset dataset explore faultset-data/
      faultset dataset explore faultset-data/ --episodes 01084746c57a --results results/faultset-data
    """
    from faultset.datasets import open_dataset
    from faultset.datasets.explorer.content import read_answers

    if serve and episodes:
        raise UsageError("--serve shows all episodes and cannot be combined with --episodes; leave out one of them")
    if port is not None and not serve:
        raise UsageError("--port needs --serve; add --serve, or leave out --port")
    opened = open_dataset(dataset, version)
    answers = None if results is None else read_answers(results)
    if serve:
        _serve_pages(opened, port, as_json=as_json, truth=not without_truth, answers=answers)
    else:
        _write_pages(opened, out, episodes, as_json=as_json, truth=not without_truth, answers=answers)


def _serve_pages(opened: Dataset, port: int | None, *, as_json: bool, **content: Any) -> None:
    import secrets

    from faultset.datasets.explorer.page import explorer_app

    token = secrets.token_urlsafe(16)

    def show_address(address: str) -> None:
        if as_json:
            show_json({"address": f"{address}/{token}/"})
            return
        click.echo(
            f"{address}/{token}/\nOpen this address in a browser on this machine; stop the server with Ctrl-C.",
            err=True,
        )

    asyncio.run(run_server(explorer_app(opened, token, **content), port, show_address))


async def run_server(app: web.Application, port: int | None, show_address: Callable[[str], None]) -> None:
    """Serve an application on the loopback interface until the task is cancelled."""
    from aiohttp import web

    host = "127.0.0.1"
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port or 0).start()
        except OSError as error:
            raise UsageError(
                f"the server cannot listen on port {port} of {host} ({error.strerror}); choose another --port"
            ) from error
        show_address(f"http://{host}:{runner.addresses[0][1]}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _write_pages(opened: Dataset, out: Path, episodes: Sequence[str], *, as_json: bool, **content: Any) -> None:
    from faultset.core.output import report_progress
    from faultset.datasets.explorer.page import write_page

    with report_progress("episodes") as progress:
        size = write_page(opened, out, episodes=episodes or None, progress=progress, **content)
    shown = sorted(set(episodes)) if episodes else [*opened.episodes, *opened.recording_files]
    if as_json:
        show_json({"file": str(out), "bytes": size, "episodes": shown})
        return
    recordings = sum(name in opened.recording_files for name in shown)
    counts = list_counts(episode=len(shown) - recordings, recording=recordings)
    click.echo(f"{counts} in {out}, {size / 1e6:.1f} MB. Open it in a browser.")


def list_recording_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the length and the numbers of chunks and incidents of each recording."""
    return [
        {
            "recording": recording.id,
            "app": recording.context.app,
            "hours": round(recording.duration_s / 3600, 2),
            "chunks": len(recording.view.chunks),
            "segments": len(recording.view.segments),
            "incidents": len(recording.truth.incidents),
            "void_min": round(sum(void.length_s for void in recording.truth.void_stretches) / 60, 1),
        }
        for recording in dataset.recordings()
    ]


def list_split_rows(dataset: Dataset) -> list[dict[str, Any]]:
    return [
        {"split": name, "key": split.key}
        | {
            side: f"{sum(stretch.length_s for stretch in getattr(split, side)) / 3600:.2f} h"
            for side in ("train", "validation", "test")
        }
        for name, split in dataset.recording_splits.items()
    ]


def incident_records(
    dataset: Dataset, selected: Sequence[str], conditions: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return a row for each incident of the selected recordings that meets the conditions on faults and verdicts."""
    return [
        row
        for name in selected
        if name in dataset.recording_files
        for row in _incident_rows(dataset.recording(name))
        if all(not conditions.get(key) or row[key[:-1]] in conditions[key] for key in ("faults", "verdicts"))
    ]


def _incident_rows(recording: Recording[Any]) -> list[dict[str, Any]]:
    rows = []
    for incident in recording.truth.incidents:
        start_ns, end_ns = recording.truth.bounds(incident)
        rows.append(
            {
                "episode": f"{recording.id}/{incident.incident}",
                "app": recording.context.app,
                "fault": incident.fault,
                "target": ", ".join(incident.targets),
                "verdict": incident.verdict,
                "onset_s": round((start_ns - recording.start_ns) / SECOND_NS, 1),
                "duration_s": round((end_ns - start_ns) / SECOND_NS, 1),
            }
        )
    return rows
