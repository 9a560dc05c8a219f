"""Serve the explorer on this machine for datasets that are too large for one file."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Callable
from functools import partial

from aiohttp import web

from faultset.core.errors import DataError, UsageError
from faultset.datasets.dataset import Dataset
from faultset.datasets.explorer.content import Answers, episode_content
from faultset.datasets.explorer.page import dataset_content, pack_content, page_text
from faultset.datasets.explorer.recordings import recording_content
from faultset.datasets.recordings.validation import check_recording_files

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

    Requests without the token get status 404.

    Parameters
    ----------
    token
        First segment of every path.
    truth
        Whether to send labels.
    answers
        Answers of methods by episode.
    """
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


async def serve(
    dataset: Dataset,
    *,
    port: int = 0,
    truth: bool = True,
    answers: Answers | None = None,
    started: Callable[[str], None],
) -> None:
    """Serve a dataset on the loopback interface until the task is cancelled.

    Parameters
    ----------
    port
        Port to listen on; 0 chooses a free one.
    started
        Called with the address of the page, which contains the token.
    """
    token = secrets.token_urlsafe(16)
    runner = web.AppRunner(explorer_app(dataset, token, truth=truth, answers=answers), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"port {port} of {HOST} cannot be used ({error.strerror}); choose another --port"
            ) from error
        started(f"http://{HOST}:{runner.addresses[0][1]}/{token}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
