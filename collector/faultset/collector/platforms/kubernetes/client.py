"""Send requests to a cluster's API server, with retries.

Requests are retried after a server restart, a 429, a 5xx or an expired token, so that a campaign continues.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from faultset.collector.platforms.objects import ObjectNotFound
from faultset.collector.spec.features import CustomResource
from faultset.core.errors import PlatformError
from faultset.datasets.kubectl.kinds import KINDS

logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

RETRY_TIMEOUT_S = 60.0
TIMEOUT_S = 30.0
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_Query = Mapping[str, str | int | bool | Sequence[str]]


class NotFound(ObjectNotFound):
    """The object or the path does not exist."""


class Conflict(PlatformError):
    """The object already exists, or has changed since it was read."""


class Expired(PlatformError):
    """The resource version is too old for a watch (410)."""


class UnexpectedStatus(PlatformError):
    """A response with an unexpected status."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """A connection to the cluster of a kubeconfig.

    Parameters
    ----------
    kubeconfig
        File to read; None for KUBECONFIG, `~/.kube/config` or, inside a pod, its service account.
    retry_timeout_s
        How long to retry while the server is unreachable or busy.
    before_request
        Called before each request and each retry; it may wait.
    """

    def __init__(
        self,
        kubeconfig: str | None = None,
        *,
        context: str | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        before_request: Callable[[], None] | None = None,
    ):
        self._kubeconfig, self._context = kubeconfig, context
        self._before_request = before_request
        self.retry_timeout_s = retry_timeout_s
        self.requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._client = self._connect()

    def _connect(self) -> ApiClient:
        configuration = Configuration()
        try:
            config.load_kube_config(self._kubeconfig, self._context, client_configuration=configuration)
        except (ConfigException, TypeError) as error:
            if self._kubeconfig is None:
                try:
                    config.load_incluster_config(client_configuration=configuration)
                except ConfigException:
                    pass
                else:
                    return self._create_client(configuration)
            raise PlatformError(
                f"no usable kubeconfig found ({_shorten(error)}); set KUBECONFIG or write ~/.kube/config"
            ) from None
        except (OSError, ValueError) as error:
            raise PlatformError(f"the kubeconfig cannot be read ({_shorten(error)}); correct it") from None
        return self._create_client(configuration)

    def _create_client(self, configuration: Configuration) -> ApiClient:
        configuration.retries = False
        configuration.connection_pool_maxsize = 64
        return ApiClient(configuration)

    @property
    def server(self) -> str:
        return str(self._client.configuration.host)

    def create_client(self) -> ApiClient:
        """Return a new client of the same cluster, for websockets, which modify their client."""
        return self._connect()

    def get(self, path: str, query: _Query | None = None, *, timeout_s: float = TIMEOUT_S) -> Any:
        return json.loads(self.call("GET", path, query=query, timeout_s=timeout_s))

    def find(self, path: str) -> Any:
        """Return the parsed response to a GET request, or None if the object does not exist."""
        try:
            return self.get(path)
        except NotFound:
            return None

    def delete(self, path: str, body: Any = None) -> bool:
        """Send a DELETE request; return False if the object does not exist."""
        try:
            self.call("DELETE", path, body=body)
        except NotFound:
            return False
        return True

    def post(self, path: str, body: Any = None, query: _Query | None = None) -> Any:
        return json.loads(self.call("POST", path, body=body, query=query) or b"null")

    def call(
        self,
        method: str,
        path: str,
        *,
        query: _Query | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        retry_timeout_s: float | None = None,
    ) -> bytes:
        """Send a request, with retries while the server is unreachable or busy; return the body of the response.

        Raises
        ------
        NotFound, Conflict, Expired
            The server responds with 404, 409 or 410.
        PlatformError
            The server refuses the request, or was unreachable or busy for longer than `retry_timeout_s`.
        """
        retry_timeout_s = self.retry_timeout_s if retry_timeout_s is None else retry_timeout_s
        deadline, pause_s, has_reconnected = time.monotonic() + retry_timeout_s, 0.25, False
        while True:
            try:
                response = self._send(method, path, query, body, content_type, headers, timeout_s, stream=False)
                return response.data
            except ApiException as error:
                if error.status == 401 and not has_reconnected:
                    has_reconnected = True
                    self._client = self._connect()
                    continue
                wait_s = _retry_after_s(error) if error.status in (429, 500, 502, 503, 504) else None
                if wait_s is None or time.monotonic() + wait_s > deadline or _comes_from_proxied_server(path, error):
                    raise build_refusal_error(error, method, path) from None
                time.sleep(max(wait_s, pause_s))
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if time.monotonic() > deadline:
                    raise PlatformError(
                        f"cannot reach the cluster's API server {self.server} ({_shorten(error)}); check the "
                        "kubeconfig and the network"
                    ) from None
                time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)

    def stream(self, path: str, query: _Query | None = None, *, timeout_s: float = 330.0) -> Iterator[bytes]:
        """Yield the lines of a streamed response until the server or the network ends it.

        Raises
        ------
        NotFound, Expired, PlatformError
            The server refuses the request.
        """
        try:
            response = self._send("GET", path, query, None, JSON, None, timeout_s, stream=True)
        except ApiException as error:
            raise build_refusal_error(error, "GET", path) from None
        except (urllib3.exceptions.HTTPError, OSError):
            return
        rest = b""
        try:
            for chunk in response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
        except (urllib3.exceptions.HTTPError, OSError):
            return
        finally:
            response.close()
            response.release_conn()
        if rest:
            yield rest

    def _send(
        self,
        method: str,
        path: str,
        query: _Query | None,
        body: Any,
        content_type: str,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        *,
        stream: bool,
    ) -> Any:
        if self._before_request is not None:
            self._before_request()
        with self._lock:
            self.requests[method] += 1
        parameters: list[tuple[str, str]] = []
        for name, value in (query or {}).items():
            values = [value] if isinstance(value, str | int | bool) else value
            parameters += [(name, str(item).lower() if isinstance(item, bool) else str(item)) for item in values]
        client = self._client
        all_headers = {"Accept": f"{JSON}, */*", "User-Agent": "faultset", **(headers or {})}
        if body is not None:
            all_headers["Content-Type"] = content_type
        token = client.configuration.auth_settings().get("BearerToken")
        if token and token["value"]:
            all_headers[str(token["key"])] = str(token["value"])
        url = client.configuration.host + path
        if parameters:
            url += "?" + urlencode(parameters)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        response = client.rest_client.pool_manager.request(
            method,
            url,
            body=data,
            headers=all_headers,
            preload_content=not stream,
            timeout=urllib3.Timeout(connect=min(10.0, timeout_s), read=timeout_s),
            retries=False,
        )
        if not 200 <= response.status < 300:
            if stream:
                response.read()
            error = ApiException(status=response.status, reason=response.reason)
            error.body, error.headers = response.data, response.headers
            raise error
        return response


def _comes_from_proxied_server(path: str, error: ApiException) -> bool:
    """Return whether a proxied server, not the API server itself, sent the error response."""
    return "/proxy/" in path and not _parse_status(error)


def _retry_after_s(error: ApiException) -> float:
    try:
        return min(float((error.headers or {}).get("Retry-After", 0)), 10.0)
    except ValueError:
        return 0.0


def _parse_status(error: ApiException) -> dict[str, Any]:
    try:
        status = json.loads(error.body or b"")
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def build_refusal_error(error: ApiException, method: str, path: str) -> PlatformError:
    """Return the exception for a request that the server refused."""
    text = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    message = str(_parse_status(error).get("message") or " ".join(text.split())[:300] or error.reason)
    match error.status:
        case 404:
            return NotFound(f"{method} {path}: {message}")
        case 409:
            return Conflict(message)
        case 410:
            return Expired(message)
        case 401:
            return PlatformError(f"the cluster rejects the kubeconfig's credentials ({message}); log in again")
        case 403:
            return PlatformError(
                f"the cluster forbids a required operation: {message}; grant the role in docs/how-to/kubernetes.md "
                "or use other credentials"
            )
        case _:
            sentence = f"the cluster responded to {method} {path} with status {error.status}: {message}"
            return UnexpectedStatus(sentence, error.status)


def _shorten(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


_RBAC = "rbac.authorization.k8s.io/v1"
_KINDS = {entry.kind: (entry.api_version, entry.plural, entry.namespaced) for entry in KINDS} | {
    "Role": (_RBAC, "roles", True),
    "RoleBinding": (_RBAC, "rolebindings", True),
    "ClusterRole": (_RBAC, "clusterroles", False),
    "ClusterRoleBinding": (_RBAC, "clusterrolebindings", False),
}
"""API version and plural of each kind, and whether its objects have a namespace."""


def build_path(kind: str, namespace: str, name: str | None = None, *, custom: CustomResource | None = None) -> str:
    """Return the API path of a kind in a namespace, or of one object; cluster-wide kinds ignore the namespace."""
    if custom is not None and kind == custom.kind:
        version, plural, is_namespaced = custom.api_version, custom.plural, True
    elif kind in _KINDS:
        version, plural, is_namespaced = _KINDS[kind]
    else:
        raise PlatformError(f"unknown kind {kind}; it must be one of {', '.join(_KINDS)}")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{root}/namespaces/{namespace}/{plural}" if is_namespaced else f"{root}/{plural}"
    return path if name is None else f"{path}/{name}"


def api_version(kind: str, *, custom: CustomResource | None = None) -> str:
    """Return the `apiVersion` of a kind, which the items of a list response lack."""
    return custom.api_version if custom is not None and kind == custom.kind else _KINDS[kind][0]


def label_selector(labels: Mapping[str, str]) -> str:
    """Return the label selector that requires all labels.

    >>> label_selector({"app": "geo", "tier": "store"})
    'app=geo,tier=store'
    """
    return ",".join(f"{name}={value}" for name, value in labels.items())


_TIMEOUT_S = 30.0


def import_client() -> None:
    """Import the modules that `run_in_pod` needs, which are the slowest imports of the platform."""
    import kubernetes.client
    import kubernetes.stream  # noqa: F401


def run_in_pod(api: Api, namespace: str, pod: str, container: str, argv: Sequence[str]) -> str:
    """Run a command in a pod and return its output; see `stream_from_pod`."""
    return "".join(stream_from_pod(api, namespace, pod, container, argv))


def stream_from_pod(api: Api, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Iterator[str]:
    """Run a command in a pod and yield its output as it arrives.

    Raises
    ------
    PlatformError
        The command could not be started, failed, or took longer than 30 s.
    """
    from kubernetes.stream.ws_client import ERROR_CHANNEL

    description = f"{argv[0]} in pod {pod}"
    response = _open_exec(api, namespace, pod, container, argv, description)
    output, deadline = [], time.monotonic() + _TIMEOUT_S
    try:
        while response.is_open():
            response.update(timeout=0.5)
            for has_data, read in (
                (response.peek_stdout, response.read_stdout),
                (response.peek_stderr, response.read_stderr),
            ):
                if has_data():
                    output.append(read())
                    yield output[-1]
            if time.monotonic() > deadline:
                raise PlatformError(f"{description} did not finish within {_TIMEOUT_S:g} s")
        code = parse_exit_code(response.read_channel(ERROR_CHANNEL), description)
    finally:
        response.close()
        if response.sock:
            # close() leaves the socket open if the server has closed the connection first
            response.sock.shutdown()
    if code:
        text = " ".join("".join(output).split())
        raise PlatformError(f"{description} ended with code {code}: {text[-400:] or 'no output'}")


def _open_exec(api: Api, namespace: str, pod: str, container: str, argv: Sequence[str], description: str) -> Any:
    from kubernetes.client import CoreV1Api
    from kubernetes.stream import stream

    try:
        return stream(
            CoreV1Api(api.create_client()).connect_get_namespaced_pod_exec,
            pod,
            namespace,
            command=list(argv),
            container=container,
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
    except ApiException as error:
        raise build_refusal_error(error, "POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/exec") from None
    except OSError as error:
        raise PlatformError(f"{description} could not be started: {' '.join(str(error).split())[:200]}") from None


def parse_exit_code(status: str, description: str) -> int:
    """Return the exit code of a command from the API server's final status.

    >>> parse_exit_code('{"status": "Success"}', "ls in pod geo")
    0

    Parameters
    ----------
    status
        JSON of the `Status` object from the error channel; empty if the connection broke.

    Raises
    ------
    PlatformError
        The command was not started, or its exit code is unknown.
    """
    try:
        result = json.loads(status)
        if result["status"] == "Success":
            return 0
        causes: list[dict[str, str]] = (result.get("details") or {}).get("causes") or []
        codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
        if codes:
            return int(codes[0])
        message = str(result.get("message") or causes[0]["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise PlatformError(
            f"{description} ended without an exit code: {' '.join(status.split())[:200] or 'no response'}"
        ) from None
    raise PlatformError(f"{description} could not be started: {' '.join(message.split())[:200]}")
