"""Write or serve the explorer's page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, UsageError
from faultset.core.files import replacing, translate_write_errors
from faultset.core.output import Progress, StepCounter
from faultset.datasets.dataset import Dataset, Episode
from faultset.datasets.explorer.content import (
    Answers,
    content_json,
    episode_content,
    episode_row,
    recording_content,
    recording_row,
)
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.recordings.validation import check_recording_files

if TYPE_CHECKING:
    from aiohttp import web

MAX_CHARACTERS = 48 << 20
"""Maximum length of the data; browsers open a page of this size quickly, even on a phone."""
_SCRIPTS = ("elements", "list", "services", "telemetry", "diagnosis", "recordings", "page")


def write_page(
    dataset: Dataset,
    out: Path,
    *,
    episodes: Sequence[str] | None = None,
    truth: bool = True,
    answers: Answers | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a page about episodes and recordings, by default all of the version, and return its size in bytes."""
    names = [*dataset.episodes, *dataset.recording_files] if episodes is None else dict.fromkeys(episodes)
    recordings = [name for name in names if name in dataset.recording_files]
    chosen = [name for name in names if name not in dataset.recording_files]
    dataset.check_files(episodes=chosen)
    check_recording_files(dataset.root, {name: dataset.recording_files[name] for name in recordings})
    steps = StepCounter(len(chosen) + len(recordings), progress)
    blocks = [_build_block("dataset", pack_content(dataset_content(dataset, chosen, recordings, truth=truth)))]
    options: dict[str, Any] = {"truth": truth, "answers": answers}
    units = chain(
        ((f"episode-{i}", episode_content(dataset[name], **options)) for i, name in enumerate(chosen)),
        (
            (f"recording-{i}", recording_content(dataset.recording(name), **options))
            for i, name in enumerate(recordings)
        ),
    )
    size = len(blocks[0])
    for name, content in units:
        blocks.append(_build_block(name, pack_content(content)))
        size += len(blocks[-1])
        if size > MAX_CHARACTERS:
            raise UsageError(
                f"the page must have at most {MAX_CHARACTERS >> 20} MB, but is larger after {len(blocks) - 1} of "
                f"{len(names)} episodes and recordings; choose fewer with --episodes, or use --serve"
            )
        steps.add()
    return _write(out, blocks)


def write_incident_page(episode: Episode, out: Path, incident: Mapping[str, Any], answers: Answers) -> int:
    """Write a page that shows an incident in one episode, without the truth; return its size in bytes.

    The incident is `{"moment_ns", "summary", "suspects": [{"service", "observations": [{"time_ns", "text"}]}]}`.
    """
    row = episode_row(episode, truth=False)
    units = {"episodes": [row], "recordings": []}
    heading = {"name": row["app"], "version": "", "truth": False, "synthetic": False, **units}
    content = episode_content(episode, truth=False, answers=answers, incident=incident)
    return _write(
        out, [_build_block("dataset", pack_content(heading)), _build_block("episode-0", pack_content(content))]
    )


def _write(out: Path, blocks: Sequence[str]) -> int:
    text = page_text("".join(blocks))
    with translate_disk_full(out.parent), translate_write_errors(out), replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return len(text.encode())


def dataset_content(
    dataset: Dataset, episodes: Sequence[str], recordings: Sequence[str], *, truth: bool
) -> dict[str, Any]:
    return {
        "name": dataset.root.resolve().name,
        "version": dataset.version,
        "truth": truth,
        "synthetic": bool(dataset.provenance.get("synthetic")),
        "episodes": [episode_row(dataset[episode], truth=truth) for episode in episodes],
        "recordings": [recording_row(dataset.recording(name), truth=truth) for name in recordings],
    }


def pack_content(content: Any) -> bytes:
    return zlib.compress(content_json(content).encode(), 9)


def page_text(blocks: str, *, served: bool = False) -> str:
    """Return the page around blocks of data; if `served`, it fetches episodes from its server."""
    script, style, template = _read_assets()
    connect = "connect-src 'self'; " if served else ""
    policy = (
        f"default-src 'none'; {connect}script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {"POLICY": policy, "STYLE": style, "DATA": blocks, "SCRIPT": script}
    # splitting the template first prevents placeholders within inserted values from being replaced
    return "".join(values.get(piece, piece) for piece in template.split("@@"))


def _build_block(name: str, content: bytes) -> str:
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(content).decode()}</script>\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _read_assets() -> tuple[str, str, str]:
    folder = files("faultset.datasets.explorer") / "assets"
    inside = "\n".join((folder / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{inside}\n}})();\n'
    return script, (folder / "page.css").read_text("utf-8"), (folder / "page.html").read_text("utf-8")


HOST = "127.0.0.1"
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def explorer_app(
    dataset: Dataset, token: str, *, truth: bool = True, answers: Answers | None = None
) -> web.Application:
    """Return the application that serves the page, and each episode as compressed JSON.

    The token is the first segment of every path; requests without it get status 404.
    """
    from aiohttp import web

    content = dataset_content(dataset, dataset.episodes, [*dataset.recording_files], truth=truth)
    index = base64.b64encode(pack_content(content)).decode()
    text = page_text(f'<script type="application/octet-stream" id="dataset">{index}</script>\n', served=True)

    def reject_other_hosts_and_tokens(request: web.Request) -> None:
        # prevent DNS rebinding: the host name of a malicious page may resolve to this machine
        host = request.host.rpartition(":")[0] or request.host
        has_token = secrets.compare_digest(request.match_info["token"].encode(), token.encode())
        if host not in (HOST, "localhost") or not has_token:
            raise web.HTTPNotFound(headers=_HEADERS)

    async def page(request: web.Request) -> web.Response:
        reject_other_hosts_and_tokens(request)
        return web.Response(text=text, content_type="text/html", headers=_HEADERS)

    async def episode(request: web.Request) -> web.Response:
        reject_other_hosts_and_tokens(request)
        name = request.match_info["episode"]
        if name not in dataset.files and name not in dataset.recording_files:
            raise web.HTTPNotFound(headers=_HEADERS)
        make = partial(_pack_episode, dataset, name, truth, answers)
        try:
            content = await asyncio.get_running_loop().run_in_executor(None, make)
        except DataError as error:
            raise web.HTTPUnprocessableEntity(text=str(error), headers=_HEADERS) from error
        return web.Response(body=content, content_type="application/octet-stream", headers=_HEADERS)

    app = web.Application()
    app.router.add_get("/{token}/", page)
    app.router.add_get("/{token}/episodes/{episode}", episode)
    return app


def _pack_episode(dataset: Dataset, name: str, truth: bool, answers: Answers | None) -> bytes:
    if name in dataset.recording_files:
        check_recording_files(dataset.root, {name: dataset.recording_files[name]})
        return pack_content(recording_content(dataset.recording(name), truth=truth, answers=answers))
    dataset.check_files(episodes=[name])
    return pack_content(episode_content(dataset[name], truth=truth, answers=answers))
