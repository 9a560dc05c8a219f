"""Store server responses on disk, so that an interrupted recording can continue."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, Parameters, parse_response
from faultset.core.errors import UsageError
from faultset.core.files import replace_text, replacing
from faultset.datasets.format.storage import translate_disk_full

REQUEST = "request.json"
_DATA_FOLDERS = {
    "/api/v1/query": "metrics",
    "/api/v1/metadata": "metrics",
    "/api/traces": "traces",
    "/loki/api/v1/query_range": "logs",
}
"""Folder of the responses by request path; other responses contain no telemetry and only guide later requests."""
FOLDERS = ("metrics", "traces", "logs", "kubernetes")
_OTHER_FOLDER = "listings"


class RateLimiter:
    """Waits before each request to keep the rate of requests below a limit."""

    def __init__(
        self,
        requests_per_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap_s = 1.0 / requests_per_s
        self._clock, self._sleep = clock, sleep
        self._next_s = clock()
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            now_s = self._clock()
            wait_s = max(0.0, self._next_s - now_s)
            self._next_s = max(self._next_s, now_s) + self._gap_s
        if wait_s:
            self._sleep(wait_s)


class Spool:
    """A folder of complete responses, one file per request.

    Parameters
    ----------
    folder
        Created if it does not exist.
    request
        Description of the recording; a folder with the responses of another recording is refused.
    """

    def __init__(self, folder: Path, request: Mapping[str, Any]) -> None:
        self.folder = folder
        self.requested = self.reused = 0
        text = json.dumps(request, indent=1, sort_keys=True) + "\n"
        with translate_disk_full(folder.parent):
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / REQUEST
            if file.exists() and file.read_text(encoding="utf-8") != text:
                raise UsageError(
                    f"{folder} contains responses to another request (see its {REQUEST}); repeat that request, delete "
                    "the folder, or choose another --out"
                )
            replace_text(file, text)

    @property
    def data_folders(self) -> list[Path]:
        return [self.folder / name for name in FOLDERS if (self.folder / name).is_dir()]

    def find(self, key: str) -> bytes | None:
        """Return the response to a request, or None."""
        for name in (*FOLDERS, _OTHER_FOLDER):
            file = self.folder / name / f"{key}.json.gz"
            if file.is_file():
                self.reused += 1
                return gzip.decompress(file.read_bytes())
        return None

    def save(self, key: str, folder: str, body: bytes) -> None:
        """Write a response atomically."""
        file = self.folder / folder / f"{key}.json.gz"
        with translate_disk_full(self.folder):
            file.parent.mkdir(exist_ok=True)
            # with mtime=0, identical responses give identical files
            with replacing(file, durable=False) as temporary:
                temporary.write_bytes(gzip.compress(body, compresslevel=1, mtime=0))
        self.requested += 1


class SpooledEndpoint(Endpoint):
    """A server whose complete responses are kept in a spool and not requested again.

    Parameters
    ----------
    folder
        Folder for all responses; by default it depends on the path of the request.
    """

    def __init__(self, endpoint: Endpoint, spool: Spool, *, folder: str = "") -> None:
        self.name = endpoint.name
        self._endpoint, self._spool, self._folder = endpoint, spool, folder

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        key = _hash_request(self.name, path, params or {})
        saved = self._spool.find(key)
        if saved is not None:
            return saved
        body = self._endpoint.body(path, params)
        response = parse_response(body, self.name, path)
        if not _is_refusal(response):
            folder = (
                self._folder
                or _DATA_FOLDERS.get(path)
                or ("traces" if path.startswith("/api/traces/") else _OTHER_FOLDER)
            )
            # a response that reaches its limit is requested again in parts, and its rows must not count twice
            is_data = not (_is_empty(response) or is_full(response, params or {}))
            self._spool.save(key, folder if is_data else _OTHER_FOLDER, body)
        return body


def _hash_request(server: str, path: str, params: Parameters) -> str:
    return hashlib.sha256(json.dumps([server, path, sorted(params.items())]).encode()).hexdigest()[:24]


def _is_refusal(response: Any) -> bool:
    """Return whether a response reports an error or is only partial."""
    if not isinstance(response, Mapping):
        return False
    return response.get("status") == "error" or bool(response.get("warnings")) or bool(response.get("errors"))


def _is_empty(response: Any) -> bool:
    """Return whether a response has no samples, traces, lines or objects."""
    if not isinstance(response, Mapping):
        return False
    data = response.get("data")
    if isinstance(data, Mapping) and "result" in data:
        return not data["result"]
    return any(name in response and not response[name] for name in ("data", "items"))


def is_full(response: Any, params: Parameters) -> bool:
    """Return whether a response has reached the limit of traces or lines in its request."""
    limit = params.get("limit")
    if not isinstance(limit, str) or not isinstance(response, Mapping):
        return False
    return count_items(response) >= int(limit)


def count_items(response: Mapping[str, Any]) -> int:
    """Return the number of traces in a Jaeger response or of lines in a Loki response."""
    data = response.get("data")
    if isinstance(data, Mapping):
        streams = data.get("result")
        return sum(len(stream.get("values") or ()) for stream in streams) if isinstance(streams, Sequence) else 0
    return len(data) if isinstance(data, list) else 0
