"""Connections to telemetry servers, through the cluster's API server or by URL."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import urllib3

from faultset.collector.platforms.kubernetes.client import RETRY_TIMEOUT_S, Api
from faultset.core.errors import PlatformError, UsageError

FIRST_RETRY_TIMEOUT_S = 5.0
TIMEOUT_S = 60.0
_BUSY_STATUSES = (429, 500, 502, 503, 504)
_JSON_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip"}

Parameters = Mapping[str, str | Sequence[str]]


class TruncatedResponse(PlatformError):
    """A response that is incomplete or not valid JSON."""


class Endpoint(Protocol):
    """A server that responds with JSON."""

    name: str
    """Name for messages, such as `Prometheus at service observe/prometheus-server:80`."""

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        """Return the body of the response.

        Raises
        ------
        TruncatedResponse
            The response is incomplete.
        PlatformError
            The server refuses the request, or was unreachable for longer than `retry_timeout_s`.
        """
        ...

    def get(self, path: str, params: Parameters | None = None) -> Any:
        return parse_response(self.body(path, params), self.name, path)


class ProxiedEndpoint(Endpoint):
    """A Service of the cluster, accessed through the API server, so that a kubeconfig is enough.

    Parameters
    ----------
    port
        Number or name of the Service's port.
    prefix
        Base path of the server, such as /jaeger/ui.
    """

    def __init__(
        self,
        api: Api,
        *,
        kind: str,
        namespace: str,
        service: str,
        port: int | str,
        prefix: str = "",
        scheme: str = "http",
        retry_timeout_s: float | None = None,
    ):
        self.name = f"{kind} at service {namespace}/{service}:{port}{prefix.rstrip('/')}"
        self.namespace, self.service, self.prefix = namespace, service, prefix.rstrip("/")
        self._api = api
        self._retry_timeout_s = retry_timeout_s
        target = f"https:{service}:{port}" if scheme == "https" else f"{service}:{port}"
        self._root = f"/api/v1/namespaces/{namespace}/services/{target}/proxy{self.prefix}"

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        try:
            return self._api.call(
                "GET",
                self._root + path,
                query=params,
                headers=_JSON_HEADERS,
                timeout_s=TIMEOUT_S,
                retry_timeout_s=self._retry_timeout_s,
            )
        except PlatformError as error:
            raise type(error)(f"{self.name} did not respond to {path}: {error}") from None


class UrlEndpoint(Endpoint):
    """A server at a URL given by the user.

    Parameters
    ----------
    url
        URL with the server's path prefix, if any; user and password are sent as basic authentication.
    token_variable
        Environment variable with a bearer token, if the server needs one.
    headers
        Additional headers.
    before_request
        Called before each request and each retry; it may wait.
    """

    def __init__(
        self,
        url: str,
        *,
        kind: str,
        token_variable: str = "",
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        headers: Mapping[str, str] = MappingProxyType({}),
        before_request: Callable[[], None] | None = None,
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f'the address of {kind} must be a URL such as http://{kind.lower()}.example:9090, got "{url}"'
            )
        host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
        address = f"{host}:{parts.port}" if parts.port else host
        self._root = urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", ""))
        self.name = f"{kind} at {self._root}"
        self._headers = {**_JSON_HEADERS, "User-Agent": "faultset", **headers}
        self._before_request = before_request
        self._token_variable = token_variable
        token = os.environ.get(token_variable, "") if token_variable else ""
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        elif parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
        self._retry_timeout_s = retry_timeout_s
        self._has_responded = False
        self._pool = urllib3.PoolManager(retries=False)

    def body(self, path: str, params: Parameters | None = None) -> bytes:
        url = self._root + path + (f"?{urlencode(params, doseq=True)}" if params else "")
        # a server that has never responded probably has a wrong address, so retries would only delay the error
        retry_timeout_s = (
            self._retry_timeout_s if self._has_responded else min(FIRST_RETRY_TIMEOUT_S, self._retry_timeout_s)
        )
        deadline, pause_s = time.monotonic() + retry_timeout_s, 0.25
        while True:
            if self._before_request is not None:
                self._before_request()
            wait_s = pause_s
            try:
                response = self._pool.request("GET", url, headers=self._headers, timeout=TIMEOUT_S)
            except urllib3.exceptions.IncompleteRead as error:
                raise TruncatedResponse(f"{self.name} sent an incomplete response to {path} ({error})") from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if _is_incomplete(error):
                    raise TruncatedResponse(f"{self.name} sent an incomplete response to {path}") from None
                if time.monotonic() + pause_s > deadline:
                    raise PlatformError(
                        f"cannot reach {self.name} ({_shorten(str(error))}); check the address and the network"
                    ) from None
            else:
                if 200 <= response.status < 300:
                    self._has_responded = True
                    return response.data
                if (
                    response.status not in _BUSY_STATUSES
                    or time.monotonic() + pause_s > deadline
                    or _is_query_error(response.data)
                ):
                    raise self._build_error(response, path)
                wait_s = max(pause_s, _retry_after_s(response))
            time.sleep(wait_s)
            pause_s = min(2 * pause_s, 5.0)

    def _build_error(self, response: Any, path: str) -> PlatformError:
        if response.status in (401, 403):
            return PlatformError(
                f"{self.name} rejects the credentials ({response.status}); put the user name and password in "
                f"the URL or a token in the environment variable {self._token_variable}".rstrip()
            )
        message = _shorten(response.data.decode(errors="replace"))
        return PlatformError(f"{self.name} responded to {path} with status {response.status}: {message}")


def _retry_after_s(response: Any) -> float:
    """Return the time that the server asks to wait, at most 30 s."""
    try:
        return min(float(response.headers.get("Retry-After", 0)), 30.0)
    except ValueError:
        return 0.0


def _is_incomplete(error: BaseException) -> bool:
    return isinstance(error, urllib3.exceptions.ProtocolError) and "IncompleteRead" in str(error)


def _is_query_error(body: bytes) -> bool:
    """Return whether Prometheus itself rejected a query, for which it also uses status 503."""
    try:
        response = json.loads(body)
    except ValueError:
        return False
    return isinstance(response, dict) and response.get("status") == "error"


def parse_response(body: bytes, name: str, path: str) -> Any:
    """Return the parsed JSON of a response; raise TruncatedResponse if it is incomplete, PlatformError for HTML."""
    try:
        return json.loads(body)
    except ValueError:
        start = _shorten(body[:80].decode(errors="replace"))
        if start.startswith("<"):
            raise PlatformError(
                f"{name} sent a web page for {path} (starting with {start!r}); check its address, and whether it needs "
                "a login"
            ) from None
        raise TruncatedResponse(
            f"{name} sent incomplete JSON for {path} ({len(body)} bytes, starting with {start!r})"
        ) from None


def _shorten(text: str) -> str:
    return " ".join(text.split())[:300]


_Item = TypeVar("_Item")


def read_ahead(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """Yield the items of an iterator; a thread fetches the next item in advance.

    >>> list(read_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        next_item = thread.submit(next, items, None)
        while (item := next_item.result()) is not None:
            next_item = thread.submit(next, items, None)
            yield item
