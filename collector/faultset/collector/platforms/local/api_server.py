"""The object store over HTTP on a socket of this machine, for operators: the part of Kubernetes' API that they use."""

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
from faultset.collector.platforms.objects import ObjectNotFound
from faultset.collector.platforms.observation.objects import EventRecorder
from faultset.core.errors import PlatformError
from faultset.datasets.kubectl.kinds import KINDS

_LARGEST_BODY = 4 << 20


class _Place(NamedTuple):
    """What a path leads to: a kind, an object or its status."""

    kind: str
    name: str | None
    part: str | None


class _Refusal(Exception):
    def __init__(self, status: int, reason: str, message: str):
        super().__init__(message)
        self.status, self.reason = status, reason


class ApiHttpServer:
    """Serves an object store until `close`.

    Parameters
    ----------
    socket
        Path of the socket; only this user can use it, since the folder is this user's alone.
    lock
        Held while objects are read or changed.
    """

    def __init__(self, socket: Path, store: ObjectStore, events: EventRecorder, lock: threading.RLock):
        socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        api = ObjectApi(store, events)

        class Handler(_Handler):
            def answer(self, method: str, body: Any) -> tuple[int, Any]:
                with lock:
                    return api.answer(method, self.path, body)

        self._server = _Server(str(socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ObjectApi:
    """Answers requests from an object store, without any I/O."""

    def __init__(self, store: ObjectStore, events: EventRecorder):
        self._store, self._events = store, events

    def answer(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """Return status and document for a request."""
        url = urlsplit(target)
        try:
            place = self._place(url.path)
            return self._answers()[method](place, dict(parse_qsl(url.query)), body)
        except _Refusal as error:
            return _status(error.status, error.reason, str(error))
        except ObjectNotFound as error:
            return _status(404, "NotFound", str(error))
        except InvalidObject as error:
            return _status(422, "Invalid", str(error))
        except PlatformError as error:
            return _status(409, "AlreadyExists", str(error))
        except (KeyError, TypeError, AttributeError) as error:
            return _status(400, "BadRequest", f"the object is not whole: {error!r}")

    def _answers(self) -> dict[str, Callable[[_Place, Mapping[str, str], Any], tuple[int, Any]]]:
        return {
            "GET": self._read, "POST": self._create, "PUT": self._replace, "PATCH": self._patch,
            "DELETE": self._delete,
        }  # fmt: skip

    def _read(self, place: _Place, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        if place.name is not None:
            return 200, self._store.get(place.kind, place.name)
        labels = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if "=" in pair)
        return 200, {"kind": f"{place.kind}List", "items": self._store.list(place.kind, labels)}

    def _create(self, place: _Place, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        if place.kind == "Event":
            about = self._store.get(body["involvedObject"]["kind"], body["involvedObject"]["name"])
            record = self._events.warning if body.get("type") == "Warning" else self._events.normal
            record(about, str(body["reason"]), str(body["message"]))
            return 201, body
        return 201, self._store.create({key: value for key, value in body.items() if key != "status"})

    def _replace(self, place: _Place, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        found = self._store.get(place.kind, _required(place))
        if place.part == "status":
            self._store.set_status(place.kind, found["metadata"]["name"], body.get("status", {}))
            return 200, self._store.get(place.kind, found["metadata"]["name"])
        return 200, self._store.apply(body)

    def _patch(self, place: _Place, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        return 200, self._store.patch(place.kind, _required(place), body)

    def _delete(self, place: _Place, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        self._store.delete(place.kind, _required(place))
        return _status(200, "Deleted", "")

    def _place(self, path: str) -> _Place:
        """Read a path such as `/apis/apps/v1/namespaces/shop/statefulsets/pd/status`."""
        parts = path.strip("/").split("/")
        version, rest = ("v1", parts[2:]) if parts[:2] == ["api", "v1"] else ("/".join(parts[1:3]), parts[3:])
        is_namespaced = rest[:1] == ["namespaces"] and len(rest) > 2
        if is_namespaced and rest[1] != self._store.namespace:
            raise _Refusal(403, "Forbidden", f'there is no access to the namespace "{rest[1]}"')
        rest = rest[2:] if is_namespaced else rest
        kind = self._kinds().get((version, rest[0])) if rest else None
        if kind is None or is_namespaced == (kind in CLUSTER_WIDE):
            raise _Refusal(404, "NotFound", "the server could not find the requested resource")
        name, part = (*rest[1:], None, None)[:2]
        return _Place(kind, name, part)

    def _kinds(self) -> dict[tuple[str, str], str]:
        """Return the kinds by API version and plural: ordinary ones, and those that are defined in the store."""
        known = {(one.api_version, one.plural): one.kind for one in KINDS}
        for found in self._store.each("CustomResourceDefinition"):
            spec = found["spec"]
            for version in spec["versions"]:
                known[f"{spec['group']}/{version['name']}", spec["names"]["plural"]] = spec["names"]["kind"]
        return known


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, method: str, body: Any) -> tuple[int, Any]:
        raise NotImplementedError

    def _serve(self) -> None:
        length = min(int(self.headers.get("Content-Length") or 0), _LARGEST_BODY)
        try:
            body = json.loads(self.rfile.read(length)) if length else None
        except ValueError:
            status, made = _status(400, "BadRequest", "the body is no JSON")
        else:
            status, made = self.answer(self.command, body)
        text = json.dumps(made).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def address_string(self) -> str:
        return "operator"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing."""


def _required(place: _Place) -> str:
    if place.name is None:
        raise _Refusal(405, "MethodNotAllowed", "name the object that is meant")
    return place.name


def _status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    word = "Success" if code < 400 else "Failure"
    return code, {"kind": "Status", "status": word, "reason": reason, "message": message, "code": code}
