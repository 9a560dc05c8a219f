"""Serve the object store on a Unix socket, through the parts of the Kubernetes API that operators use."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from faultset.collector.platforms.cluster.object_store import CLUSTER_WIDE, InvalidObject, ObjectStore
from faultset.collector.platforms.objects import EventRecorder, ObjectNotFound
from faultset.core.errors import PlatformError
from faultset.datasets.kubectl.kinds import KINDS

_LARGEST_BODY = 4 << 20


class _Target(NamedTuple):
    """The target of a request: a kind, one of its objects, or a subresource such as the object's status."""

    kind: str
    name: str | None
    subresource: str | None


class _Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str):
        super().__init__(message)
        self.status, self.reason = status, reason


class ApiHttpServer:
    """Serves an object store on a socket until `close`.

    Parameters
    ----------
    socket
        Path of the socket; its folder is accessible only to this user.
    lock
        Held during each request.
    """

    def __init__(self, socket: Path, store: ObjectStore, events: EventRecorder, lock: threading.RLock):
        socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        api = ObjectApi(store, events)

        class Handler(_Handler):
            def respond(self, method: str, body: Any) -> tuple[int, Any]:
                with lock:
                    return api.respond(method, self.path, body)

        self._server = _Server(str(socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ObjectApi:
    """Responds to API requests from an object store, without I/O."""

    def __init__(self, store: ObjectStore, events: EventRecorder):
        self._store, self._events = store, events

    def respond(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status code and the document of the response to a request."""
        url = urlsplit(path)
        try:
            target = self._parse_path(url.path)
            return self._handlers()[method](target, dict(parse_qsl(url.query)), body)
        except _Refusal as error:
            return _build_status(error.status, error.reason, str(error))
        except ObjectNotFound as error:
            return _build_status(404, "NotFound", str(error))
        except InvalidObject as error:
            return _build_status(422, "Invalid", str(error))
        except PlatformError as error:
            return _build_status(409, "AlreadyExists", str(error))
        except (KeyError, TypeError, AttributeError) as error:
            return _build_status(400, "BadRequest", f"the object is incomplete: {error!r}")

    def _handlers(self) -> dict[str, Callable[[_Target, Mapping[str, str], Any], tuple[int, Any]]]:
        return {
            "GET": self._read, "POST": self._create, "PUT": self._replace, "PATCH": self._patch,
            "DELETE": self._delete,
        }  # fmt: skip

    def _read(self, target: _Target, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        if target.name is not None:
            return 200, self._store.get(target.kind, target.name)
        labels = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if "=" in pair)
        return 200, {"kind": f"{target.kind}List", "items": self._store.list(target.kind, labels)}

    def _create(self, target: _Target, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        if target.kind == "Event":
            involved_object = self._store.get(body["involvedObject"]["kind"], body["involvedObject"]["name"])
            record = self._events.warning if body.get("type") == "Warning" else self._events.normal
            record(involved_object, str(body["reason"]), str(body["message"]))
            return 201, body
        return 201, self._store.create({key: value for key, value in body.items() if key != "status"})

    def _replace(self, target: _Target, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        current = self._store.get(target.kind, _require_name(target))
        if target.subresource == "status":
            self._store.set_status(target.kind, current["metadata"]["name"], body.get("status", {}))
            return 200, self._store.get(target.kind, current["metadata"]["name"])
        return 200, self._store.apply(body)

    def _patch(self, target: _Target, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        return 200, self._store.patch(target.kind, _require_name(target), body)

    def _delete(self, target: _Target, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        self._store.delete(target.kind, _require_name(target))
        return _build_status(200, "Deleted", "")

    def _parse_path(self, path: str) -> _Target:
        """Parse a path such as `/apis/apps/v1/namespaces/shop/statefulsets/pd/status`."""
        parts = path.strip("/").split("/")
        version, rest = ("v1", parts[2:]) if parts[:2] == ["api", "v1"] else ("/".join(parts[1:3]), parts[3:])
        is_namespaced = rest[:1] == ["namespaces"] and len(rest) > 2
        if is_namespaced and rest[1] != self._store.namespace:
            raise _Refusal(403, "Forbidden", f'there is no access to the namespace "{rest[1]}"')
        rest = rest[2:] if is_namespaced else rest
        kind = self._kinds().get((version, rest[0])) if rest else None
        if kind is None or is_namespaced == (kind in CLUSTER_WIDE):
            raise _Refusal(404, "NotFound", "the server could not find the requested resource")
        name, subresource = (*rest[1:], None, None)[:2]
        return _Target(kind, name, subresource)

    def _kinds(self) -> dict[tuple[str, str], str]:
        """Return the kinds by API version and plural: built-in kinds and custom resources defined in the store."""
        kinds = {(entry.api_version, entry.plural): entry.kind for entry in KINDS}
        for definition in self._store.each("CustomResourceDefinition"):
            spec = definition["spec"]
            for version in spec["versions"]:
                kinds[f"{spec['group']}/{version['name']}", spec["names"]["plural"]] = spec["names"]["kind"]
        return kinds


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    def respond(self, method: str, body: Any) -> tuple[int, Any]:
        raise NotImplementedError

    def _serve(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _LARGEST_BODY)
        try:
            body = json.loads(self.rfile.read(length)) if length else None
        except ValueError:
            status, document = _build_status(400, "BadRequest", "the body is not valid JSON")
        else:
            status, document = self.respond(self.command, body)
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def address_string(self) -> str:
        return "operator"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


def _require_name(target: _Target) -> str:
    if target.name is None:
        raise _Refusal(405, "MethodNotAllowed", "the request must name an object")
    return target.name


def _build_status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    status = "Success" if code < 400 else "Failure"
    return code, {"kind": "Status", "status": status, "reason": reason, "message": message, "code": code}
