"""The API server as a pod reaches it: objects by kind, on a cluster and on the embedded platform alike."""

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
"""Environment variable with the path of the embedded platform's API server, in pods with an account."""

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S = 10.0

Manifest = dict[str, Any]


class ResourceType(NamedTuple):
    """What a path needs to know of a kind."""

    api_version: str
    plural: str


class ApiRefusal(PlatformError):
    """The API server refuses a request.

    Attributes
    ----------
    status
        HTTP status: 404 for absent, 409 for existing and 422 for invalid objects.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class ClusterApi:
    """Objects of one namespace.

    Parameters
    ----------
    connect
        Makes a connection for one request.
    namespace
        The namespace.
    token
        Returns what the requests are authorized with; nothing where that is not needed.
    """

    def __init__(
        self,
        connect: Callable[[], http.client.HTTPConnection],
        namespace: str,
        token: Callable[[], str] = lambda: "",
    ):
        self._connect, self._namespace, self._token = connect, namespace, token

    def get(self, of: ResourceType, name: str) -> Manifest | None:
        """Return an object; None when there is none."""
        try:
            return self._ask("GET", of, name)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def list(self, of: ResourceType, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the objects that carry the labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return self._ask("GET", of, query=f"?labelSelector={selector}")["items"]

    def create(self, of: ResourceType, wanted: Mapping[str, Any]) -> Manifest:
        """Create an object; raise ApiRefusal when it exists or is invalid."""
        return self._ask("POST", of, body=wanted)

    def replace(self, of: ResourceType, wanted: Mapping[str, Any]) -> Manifest:
        """Replace all of an object but its status; raise ApiRefusal when it is absent or invalid."""
        return self._ask("PUT", of, wanted["metadata"]["name"], body=wanted)

    def patch(self, of: ResourceType, name: str, change: Mapping[str, Any]) -> Manifest:
        """Apply a merge patch to an object; raise ApiRefusal when it is absent or what comes out is invalid."""
        return self._ask("PATCH", of, name, body=change)

    def set_status(self, of: ResourceType, found: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Replace the status of an object."""
        self._ask("PUT", of, f"{found['metadata']['name']}/status", body={**found, "status": status})

    def delete(self, of: ResourceType, name: str) -> None:
        """Delete an object; nothing happens when there is none."""
        try:
            self._ask("DELETE", of, name)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise

    def _ask(
        self, method: str, of: ResourceType, name: str = "", *, query: str = "", body: Mapping[str, Any] | None = None
    ) -> Any:
        root = f"/apis/{of.api_version}" if "/" in of.api_version else f"/api/{of.api_version}"
        path = f"{root}/namespaces/{self._namespace}/{of.plural}{'/' if name else ''}{name}{query}"
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json"}
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
            raise ApiRefusal(response.status, _message(text) or f"{method} {path}: status {response.status}")
        return json.loads(text) if text else {}


def cluster_api(variables: Mapping[str, str] | None = None) -> ClusterApi:
    """Return the API server of the platform that this pod runs on.

    Raises
    ------
    PlatformError
        The pod has no account with which it could ask one.
    """
    found = os.environ if variables is None else variables
    namespace = found.get("POD_NAMESPACE") or "default"
    if path := found.get(SOCKET_VARIABLE):
        return ClusterApi(lambda: _SocketConnection(path), namespace)
    host, port = found.get("KUBERNETES_SERVICE_HOST"), int(found.get("KUBERNETES_SERVICE_PORT") or 443)
    if not host or not (_ACCOUNT / "token").exists():
        raise PlatformError(
            f"there is no API server: neither {SOCKET_VARIABLE} nor a service account is set; run it in a pod that has "
            "the account of the application's operator"
        )
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    return ClusterApi(
        lambda: http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context),
        namespace,
        lambda: (_ACCOUNT / "token").read_text("utf-8").strip(),  # renewed by the kubelet, so read every time
    )


class _SocketConnection(http.client.HTTPConnection):
    """A connection to a socket of this machine."""

    def __init__(self, path: str):
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text).get("message") or "")
    except (ValueError, AttributeError):
        return text.decode("utf-8", "replace")[:200]
