"""Client of the API server for use in pods, on a cluster and on the embedded platform."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from faultset.core.errors import PlatformError

SOCKET_VARIABLE = "FAULTSET_API"
"""Variable with the socket path of the embedded platform's API server, set in pods that have an account."""

_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 10.0

Manifest = dict[str, Any]


class ResourceType(NamedTuple):
    """API version and plural name of a kind, as in its paths."""

    api_version: str
    plural: str


class ApiRefusal(PlatformError):
    """The API server refused a request.

    The HTTP status is 404 if the object does not exist, 409 if it already exists or has changed, 422 if it is invalid.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class ClusterApi:
    """Reads and changes objects of one namespace; `token` returns the bearer token of requests, or an empty one."""

    def __init__(
        self, connect: Callable[[], http.client.HTTPConnection], namespace: str, token: Callable[[], str] = lambda: ""
    ):
        self._connect, self._namespace, self._token = connect, namespace, token

    def get(self, resource: ResourceType, name: str) -> Manifest | None:
        """Return an object; None if it does not exist."""
        try:
            return self._request("GET", resource, name)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def list(self, resource: ResourceType, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the objects that have the labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return self._request("GET", resource, query=f"?labelSelector={selector}")["items"]

    def create(self, resource: ResourceType, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object; raise ApiRefusal if it exists or is invalid."""
        return self._request("POST", resource, body=manifest)

    def replace(self, resource: ResourceType, manifest: Mapping[str, Any]) -> Manifest:
        """Replace an object except for its status; raise ApiRefusal if it does not exist or is invalid."""
        return self._request("PUT", resource, manifest["metadata"]["name"], body=manifest)

    def patch(self, resource: ResourceType, name: str, change: Mapping[str, Any]) -> Manifest:
        """Apply a merge patch to an object; raise ApiRefusal if it does not exist or the result is invalid."""
        return self._request("PATCH", resource, name, body=change)

    def set_status(self, resource: ResourceType, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        self._request("PUT", resource, f"{manifest['metadata']['name']}/status", body={**manifest, "status": status})

    def delete(self, resource: ResourceType, name: str) -> None:
        """Delete an object, if it exists."""
        try:
            self._request("DELETE", resource, name)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise

    def _request(
        self, method: str, resource: ResourceType, name: str = "", *, query: str = "", body: object = None
    ) -> Any:
        root = f"/apis/{resource.api_version}" if "/" in resource.api_version else f"/api/{resource.api_version}"
        path = f"{root}/namespaces/{self._namespace}/{resource.plural}{'/' if name else ''}{name}{query}"
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        connection = self._connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise PlatformError(f"the API server does not answer: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiRefusal(response.status, _read_message(text) or f"{method} {path}: status {response.status}")
        return json.loads(text) if text else {}


def cluster_api(variables: Mapping[str, str] | None = None) -> ClusterApi:
    """Return a client of the API server that this pod may use; raise PlatformError if it has no service account."""
    variables = os.environ if variables is None else variables
    namespace = variables.get("POD_NAMESPACE") or "default"
    if path := variables.get(SOCKET_VARIABLE):
        return ClusterApi(lambda: _SocketConnection(path), namespace)
    host, port = variables.get("KUBERNETES_SERVICE_HOST"), int(variables.get("KUBERNETES_SERVICE_PORT") or 443)
    if not host or not (_ACCOUNT_FOLDER / "token").exists():
        raise PlatformError(
            f"the API server is not reachable: {SOCKET_VARIABLE} is not set and the pod has no service account; run "
            "this in a pod with the account of the application's operator"
        )
    context = ssl.create_default_context(cafile=str(_ACCOUNT_FOLDER / "ca.crt"))
    return ClusterApi(
        lambda: http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context),
        namespace,
        lambda: (
            (_ACCOUNT_FOLDER / "token").read_text("utf-8").strip()
        ),  # read every time, because the kubelet renews it
    )


class _SocketConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _read_message(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message") or "")
    except (ValueError, AttributeError):
        return text.decode("utf-8", "replace")[:200]
