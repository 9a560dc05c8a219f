"""The HTTP server of `faultset dataset serve`, on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from aiohttp import web

from faultset.core.errors import FaultsetError
from faultset.datasets.serve.jaeger_api import JaegerApi
from faultset.datasets.serve.loki_api import LokiApi
from faultset.datasets.serve.prometheus_api import PrometheusApi
from faultset.datasets.serve.telemetry import ServedClock, ServedTelemetry
from faultset.datasets.views import EpisodeView

HOST = "127.0.0.1"
_MAX_BODY_BYTES = 1 << 20
_MAX_OPEN_EPISODES = 4
_PATHS = "this server has paths below /api/v1 (Prometheus), /api (Jaeger) and /loki/api/v1 (Loki)"
"""Also the response at the root, which clients request to test the server."""
_READY = ("-/ready", "-/healthy", "ready")
OpenEpisode = Callable[[str], tuple[EpisodeView, ServedClock]]
"""Return the view and clock of an episode, or raise DataError if it does not exist; "" names the only episode."""
Answer = Callable[[str, Mapping[str, list[str]]], tuple[int, Any]]


class EpisodeApis:
    def __init__(self, telemetry: ServedTelemetry) -> None:
        self._apis: tuple[tuple[str, Answer], ...] = (
            ("loki/api/v1/", LokiApi(telemetry).answer),
            ("api/v1/", PrometheusApi(telemetry).answer),
            ("api/", JaegerApi(telemetry).answer),
        )

    def answer(self, path: str, parameters: Mapping[str, list[str]]) -> tuple[int, Any]:
        """Return the HTTP status, and a document or text, for a path without a leading slash."""
        for prefix, answer in self._apis:
            if path.startswith(prefix):
                return answer(path.removeprefix(prefix), parameters)
        if path in _READY:
            return 200, "ready"
        return 404 if path else 200, _PATHS


def serving_app(open_episode: OpenEpisode, *, is_single: bool) -> web.Application:
    """Return the application that answers requests about episodes.

    If `is_single`, the only episode is at the root; otherwise the first segment of a path is the id of an episode.
    """

    lock = threading.Lock()  # so that tables are read once, and only one query at a time uses memory

    @lru_cache(maxsize=_MAX_OPEN_EPISODES)
    def apis(episode: str) -> EpisodeApis:
        return EpisodeApis(ServedTelemetry(*open_episode(episode)))

    def answer(path: str, parameters: Mapping[str, list[str]]) -> tuple[int, Any]:
        episode, _, rest = ("", "", path) if is_single else path.partition("/")
        try:
            with lock:
                return apis(episode).answer(rest, parameters)
        except FaultsetError as error:
            return 404, str(error)

    async def handle(request: web.Request) -> web.Response:
        # Prevent DNS rebinding: the host name of a malicious page may resolve to this machine.
        host = request.host.rpartition(":")[0] or request.host
        if host not in (HOST, "localhost"):
            raise web.HTTPForbidden(text=f"the host of the address must be {HOST} or localhost")
        parameters = await _read_parameters(request)
        status, document = await asyncio.to_thread(answer, request.match_info["path"], parameters)
        if isinstance(document, str):
            return web.Response(status=status, text=document)
        response = web.Response(
            status=status, text=json.dumps(document, separators=(",", ":")), content_type="application/json"
        )
        response.enable_compression()
        return response

    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.router.add_get("/{path:.*}", handle)
    app.router.add_post("/{path:.*}", handle)
    return app


async def _read_parameters(request: web.Request) -> dict[str, list[str]]:
    """Return the parameters of the address and of a form in the body."""
    parameters: dict[str, list[str]] = {}
    form = await request.post() if request.method == "POST" else {}
    for name, value in (*request.query.items(), *form.items()):
        if isinstance(value, str):
            parameters.setdefault(name, []).append(value)
    return parameters
