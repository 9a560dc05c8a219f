"""Requests to a cluster's API server, repeated while the server is away.

An API server may restart, ask to wait (429), be overloaded (5xx) or no longer accept a token that has expired;
none of these ends a campaign. What it refuses for good becomes one sentence.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from faultset.collector.platforms.objects import ObjectNotFound
from faultset.collector.spec.features.operators import CustomResource
from faultset.core.errors import PlatformError

logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

RETRY_TIMEOUT_S = 60.0
TIMEOUT_S = 30.0
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_Query = Mapping[str, str | int | bool | Sequence[str]]


class NotFound(ObjectNotFound):
    """The object, or the path, does not exist."""


class Conflict(PlatformError):
    """The object exists already, or has changed meanwhile."""


class Expired(PlatformError):
    """The resource version is too old to watch from (410)."""


class UnexpectedStatus(PlatformError):
    """An answer with a status that nothing here can deal with."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """A connection to the cluster that the user's kubeconfig names.

    Parameters
    ----------
    kubeconfig
        File to read instead of the one that KUBECONFIG or the home folder names; inside a pod, its service account
        is used when there is neither.
    retry_timeout_s
        How long to try again when the server cannot be reached or has no time.
    """

    def __init__(
        self, kubeconfig: str | None = None, *, context: str | None = None, retry_timeout_s: float = RETRY_TIMEOUT_S
    ):
        self._kubeconfig, self._context = kubeconfig, context
        self.retry_timeout_s = retry_timeout_s
        self.requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._client = self._connect()

    def _connect(self) -> ApiClient:
        made = Configuration()
        try:
            config.load_kube_config(self._kubeconfig, self._context, client_configuration=made)
        except (ConfigException, TypeError) as error:
            if self._kubeconfig is None:
                try:
                    config.load_incluster_config(client_configuration=made)
                except ConfigException:
                    pass
                else:
                    return self._client_of(made)
            raise PlatformError(
                f"a kubeconfig is needed to reach the cluster, but there is none that works ({_said(error)}); "
                "set KUBECONFIG or write ~/.kube/config"
            ) from None
        except (OSError, ValueError) as error:
            raise PlatformError(f"the kubeconfig cannot be read ({_said(error)}); correct it") from None
        return self._client_of(made)

    def _client_of(self, made: Configuration) -> ApiClient:
        made.retries = False
        made.connection_pool_maxsize = 64
        return ApiClient(made)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._client.configuration.host)

    def fresh_client(self) -> ApiClient:
        """Return another client of the same cluster, for websockets, which change the client that they use."""
        return self._connect()

    def get(self, path: str, query: _Query | None = None, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the parsed answer to a GET."""
        return json.loads(self.call("GET", path, query=query, timeout_s=timeout_s))

    def get_text(self, path: str, query: _Query | None = None, *, timeout_s: float = TIMEOUT_S) -> bytes:
        """Return the body of the answer to a GET."""
        return self.call("GET", path, query=query, timeout_s=timeout_s)

    def post(self, path: str, body: Any = None, query: _Query | None = None) -> Any:
        """Return the parsed answer to a POST."""
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
        """Send one request, again while the server is away or busy, and return the body of the answer.

        Raises
        ------
        NotFound, Conflict, Expired
            The server says 404, 409 or 410.
        PlatformError
            It refuses, or was away for longer than `retry_timeout_s`.
        """
        retry_timeout_s = self.retry_timeout_s if retry_timeout_s is None else retry_timeout_s
        deadline, pause_s, renewed = time.monotonic() + retry_timeout_s, 0.25, False
        while True:
            try:
                response = self._send(method, path, query, body, content_type, headers, timeout_s, stream=False)
                return response.data
            except ApiException as error:
                if error.status == 401 and not renewed:
                    renewed = True
                    self._client = self._connect()
                    continue
                wait_s = _wait_asked_for(error) if error.status in (429, 500, 502, 503, 504) else None
                if wait_s is None or time.monotonic() + wait_s > deadline or _is_of_a_proxied_server(path, error):
                    raise refusal(error, method, path) from None
                time.sleep(max(wait_s, pause_s))
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if time.monotonic() > deadline:
                    raise PlatformError(
                        f"the cluster's API server {self.server} cannot be reached ({_said(error)}); check the "
                        "kubeconfig and the network"
                    ) from None
                time.sleep(pause_s)
            pause_s = min(2 * pause_s, 5.0)

    def stream(self, path: str, query: _Query | None = None, *, timeout_s: float = 330.0) -> Iterator[bytes]:
        """Yield the lines of an answer that goes on, as they come; end when the server or the network ends it.

        Raises
        ------
        NotFound, Expired, PlatformError
            The server refuses.
        """
        try:
            response = self._send("GET", path, query, None, JSON, None, timeout_s, stream=True)
        except ApiException as error:
            raise refusal(error, "GET", path) from None
        except (urllib3.exceptions.HTTPError, OSError):
            return
        rest = b""
        try:
            for piece in response.stream(amt=None, decode_content=False):
                *lines, rest = (rest + piece).split(b"\n")
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
        with self._lock:
            self.requests[method] += 1
        parts: list[tuple[str, str]] = []
        for name, value in (query or {}).items():
            values = [value] if isinstance(value, str | int | bool) else value
            parts += [(name, str(one).lower() if isinstance(one, bool) else str(one)) for one in values]
        client = self._client
        sent = {"Accept": f"{JSON}, */*", "User-Agent": "faultset", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = content_type
        token = client.configuration.auth_settings().get("BearerToken")
        if token and token["value"]:
            sent[str(token["key"])] = str(token["value"])
        url = client.configuration.host + path
        if parts:
            url += "?" + urlencode(parts)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        response = client.rest_client.pool_manager.request(
            method,
            url,
            body=data,
            headers=sent,
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


def _is_of_a_proxied_server(path: str, error: ApiException) -> bool:
    """Say whether an error behind a proxy path is final: the server behind it answered, it is not our API server."""
    return "/proxy/" in path and not _status_of(error)


def _wait_asked_for(error: ApiException) -> float:
    try:
        return min(float((error.headers or {}).get("Retry-After", 0)), 10.0)
    except ValueError:
        return 0.0


def _status_of(error: ApiException) -> dict[str, Any]:
    try:
        found = json.loads(error.body or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def refusal(error: ApiException, method: str, path: str) -> PlatformError:
    """Return the sentence for what the server would not do."""
    text = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    message = str(_status_of(error).get("message") or " ".join(text.split())[:300] or error.reason)
    match error.status:
        case 404:
            return NotFound(f"{method} {path}: {message}")
        case 409:
            return Conflict(message)
        case 410:
            return Expired(message)
        case 401:
            return PlatformError(f"the cluster does not accept the kubeconfig's credentials ({message}); log in again")
        case 403:
            return PlatformError(
                f"the cluster forbids a required operation: {message}; grant the role in docs/how-to/kubernetes.md "
                "or use other credentials"
            )
        case _:
            sentence = f"the cluster answered {error.status} to {method} {path}: {message}"
            return UnexpectedStatus(sentence, error.status)


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


_CORE, _APPS = "/api/v1", "/apis/apps/v1"
_RBAC, _STORAGE = "/apis/rbac.authorization.k8s.io/v1", "/apis/storage.k8s.io/v1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1"

_PLURALS = {
    "Pod": (_CORE, "pods"),
    "Service": (_CORE, "services"),
    "Endpoints": (_CORE, "endpoints"),
    "ConfigMap": (_CORE, "configmaps"),
    "Secret": (_CORE, "secrets"),
    "ServiceAccount": (_CORE, "serviceaccounts"),
    "PersistentVolumeClaim": (_CORE, "persistentvolumeclaims"),
    "Event": (_CORE, "events"),
    "Deployment": (_APPS, "deployments"),
    "ReplicaSet": (_APPS, "replicasets"),
    "StatefulSet": (_APPS, "statefulsets"),
    "DaemonSet": (_APPS, "daemonsets"),
    "Role": (_RBAC, "roles"),
    "RoleBinding": (_RBAC, "rolebindings"),
}
_CLUSTER_WIDE = {
    "PersistentVolume": (_CORE, "persistentvolumes"),
    "Namespace": (_CORE, "namespaces"),
    "Node": (_CORE, "nodes"),
    "StorageClass": (_STORAGE, "storageclasses"),
    "CustomResourceDefinition": (_DEFINITIONS, "customresourcedefinitions"),
}


def path_of(kind: str, namespace: str, name: str | None = None, *, custom: CustomResource | None = None) -> str:
    """Return the path of a kind in a namespace, or of one object; the namespace is left out where there is none.

    Parameters
    ----------
    custom
        A kind that the application defines itself.
    """
    if custom is not None and kind == custom.kind:
        path = f"/apis/{custom.api_version}/namespaces/{namespace}/{custom.plural}"
    elif kind in _CLUSTER_WIDE:
        root, plural = _CLUSTER_WIDE[kind]
        path = f"{root}/{plural}"
    elif kind in _PLURALS:
        root, plural = _PLURALS[kind]
        path = f"{root}/namespaces/{namespace}/{plural}"
    else:
        raise PlatformError(f"objects of kind {kind} are not known; known are {', '.join([*_PLURALS, *_CLUSTER_WIDE])}")
    return path if name is None else f"{path}/{name}"


def api_version(kind: str, *, custom: CustomResource | None = None) -> str:
    """Return the `apiVersion` of a kind, which lists leave out of their items."""
    if custom is not None and kind == custom.kind:
        return custom.api_version
    root, _ = _PLURALS.get(kind) or _CLUSTER_WIDE[kind]
    return root.removeprefix("/apis/").removeprefix("/api/")


_TIMEOUT_S = 30.0


def import_client() -> None:
    """Import what `run_in_pod` needs, which takes longer than all else that the platform imports."""
    import kubernetes.client
    import kubernetes.stream  # noqa: F401


def run_in_pod(api: Api, namespace: str, pod: str, container: str, argv: Sequence[str]) -> str:
    """Return what the command printed; see `stream_from_pod`."""
    return "".join(stream_from_pod(api, namespace, pod, container, argv))


def stream_from_pod(api: Api, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Iterator[str]:
    """Yield what a command prints, as it arrives.

    Raises
    ------
    PlatformError
        It ended with another code than 0, took longer than half a minute, or could not be started.
    """
    from kubernetes.client import CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import stream
    from kubernetes.stream.ws_client import ERROR_CHANNEL

    core = CoreV1Api(api.fresh_client())
    where = f"{argv[0]} in pod {pod}"
    try:
        answer: Any = stream(
            core.connect_get_namespaced_pod_exec,
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
        raise refusal(error, "POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/exec") from None
    except OSError as error:
        raise PlatformError(f"{where} could not be started: {' '.join(str(error).split())[:200]}") from None
    printed, deadline = [], time.monotonic() + _TIMEOUT_S
    try:
        while answer.is_open():
            answer.update(timeout=0.5)
            for has, read in ((answer.peek_stdout, answer.read_stdout), (answer.peek_stderr, answer.read_stderr)):
                if has():
                    printed.append(read())
                    yield printed[-1]
            if time.monotonic() > deadline:
                raise PlatformError(f"{where} did not end within {_TIMEOUT_S:g} s")
        code = exit_code(answer.read_channel(ERROR_CHANNEL), where)
    finally:
        answer.close()
        if answer.sock:
            # a client whose server has hung up first keeps its socket
            answer.sock.shutdown()
    if code:
        output = " ".join("".join(printed).split())
        raise PlatformError(f"{where} ended with code {code}: {output[-400:] or 'no output'}")


def exit_code(status: str, where: str) -> int:
    """Return with which code a command has ended, by what the API server says at its end.

    >>> exit_code('{"status": "Success"}', "ls in pod geo")
    0

    Parameters
    ----------
    status
        The object `Status` of the connection's error channel, as JSON; empty where the connection broke.
    where
        The command and its pod, for the error.

    Raises
    ------
    PlatformError
        It was not started, or nobody knows how it has ended.
    """
    try:
        found = json.loads(status)
        if found["status"] == "Success":
            return 0
        causes: list[dict[str, str]] = (found.get("details") or {}).get("causes") or []
        codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
        if codes:
            return int(codes[0])
        said = str(found.get("message") or causes[0]["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise PlatformError(f"{where} ended without a code: {' '.join(status.split())[:200] or 'no answer'}") from None
    raise PlatformError(f"{where} could not be started: {' '.join(said.split())[:200]}")
