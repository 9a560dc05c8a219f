"""Small servers on loopback that speak as Prometheus, Jaeger and an API server do, and the cluster of KUBECONFIG."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from faultset.collector.platforms.kubernetes.client import Api

sys.path.insert(0, str(Path(__file__).parent))
from object_server import ObjectServer

_MATCHER = re.compile(r'(\w+)(=~|!=|=)"((?:[^"\\]|\\.)*)"')
_RANGE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)?(?:\{(?P<matchers>.*?)\})?\[(?P<ms>\d+)ms\]", re.DOTALL)


class Broken(Exception):
    """The connection breaks in the middle of this answer."""

    def __init__(self, body: bytes):
        super().__init__()
        self.body = body


class Refused(Exception):
    """The server answers with an error."""

    def __init__(self, status: int, body: Any):
        super().__init__()
        self.status, self.body = status, body


Handler = Callable[[str, str, dict[str, list[str]], bytes], Any]


class JsonServer:
    """Serves the results of a function as JSON, and records the requests."""

    def __init__(self, answer: Handler):
        self.answer = answer
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self.headers: list[Mapping[str, str]] = []
        outer = self

        class _Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                params = parse_qs(parts.query)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((parts.path, params))
                outer.headers.append(dict(self.headers.items()))
                status, missing = 200, 0
                try:
                    answer = outer.answer(self.command, parts.path, params, body)
                    data = json.dumps(answer, separators=(",", ":")).encode()
                except Refused as error:
                    status = error.status
                    data = error.body if isinstance(error.body, bytes) else json.dumps(error.body).encode()
                except Broken as error:
                    data, missing = error.body, 100
                self.send_response(status)
                self.send_header("Content-Length", str(len(data) + missing))
                self.end_headers()
                self.wfile.write(data)
                if missing:
                    self.close_connection = True

            do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Request)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Prometheus:
    """Samples and metadata of a server; responds to the queries of the source."""

    samples: list[tuple[dict[str, str], list[tuple[float, Any]]]] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)
    config: str = "global: {scrape_interval: 7s}"
    most_samples: int = 10**9
    closed_ranges: bool = False
    """Whether a range contains its start, as up to version 2."""
    before_answer: Callable[[str], None] = lambda path: None
    warnings: Sequence[str] = ()
    largest_answer: int = 0
    clock_ahead_s: float = 0.0
    exemplars: list[tuple[dict[str, str], list[dict[str, Any]]]] = field(default_factory=list)

    def add(self, name: str, samples: Sequence[tuple[float, float | str]], /, **labels: str) -> None:
        self.samples.append(({"__name__": name, **labels}, [(at, str(value)) for at, value in samples]))

    def add_histograms(self, name: str, samples: Sequence[tuple[float, Any]], /, **labels: str) -> None:
        """Add a series of native histograms, each in the form of the API."""
        self.samples.append(({"__name__": name, **labels}, list(samples)))

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        self.before_answer(path)
        match path:
            case "/api/v1/query":
                return self._success(self._query(params["query"][0], params.get("time")))
            case "/api/v1/label/__name__/values":
                chosen = [selected for match in params["match[]"] for selected in self._selected(None, match[1:-1])]
                return self._success(sorted({labels["__name__"] for labels, _ in chosen}))
            case "/api/v1/targets":
                return self._success({"activeTargets": self.targets})
            case "/api/v1/metadata":
                return self._success({name: [{"type": kind, "unit": ""}] for name, kind in self.metadata.items()})
            case "/api/v1/status/config":
                return self._success({"yaml": self.config})
            case "/api/v1/query_exemplars":
                [(key, _, value)] = _MATCHER.findall(params["query"][0][1:-1])
                chosen = [series for series in self.exemplars if series[0].get(key) == json.loads(f'"{value}"')]
                return self._success([{"seriesLabels": labels, "exemplars": items} for labels, items in chosen])
        raise Refused(404, b"404 page not found")

    def _success(self, data: Any) -> Any:
        return {"status": "success", "data": data} | ({"warnings": list(self.warnings)} if self.warnings else {})

    def _query(self, query: str, at: list[str] | None) -> Any:
        now = float(at[0]) if at else time.time() + self.clock_ahead_s
        if query == "time()":
            return {"resultType": "scalar", "result": [now, str(now)]}
        if query == "vector(1)":
            return {"resultType": "vector", "result": [{"metric": {}, "value": [now, "1"]}]}
        found = _RANGE.search(query)
        if found is None:
            counted = re.fullmatch(r"count\((\w+)(?:\{(.*)\})?\)", query)
            assert counted is not None, query
            return self._counted(len(self._selected(counted[1], counted[2] or "")), now)
        start_ms, end_ms = round(now * 1e3) - int(found["ms"]), round(now * 1e3)
        result, count = [], 0
        for labels, samples in self._selected(found["name"], found["matchers"] or ""):
            kept = [
                [at, value]
                for at, value in samples
                if start_ms - self.closed_ranges < round(at * 1e3) <= end_ms
            ]  # fmt: skip
            count += len(kept)
            if kept:
                kind = "values" if isinstance(kept[0][1], str) else "histograms"
                result.append({"metric": labels, kind: kept})
        if count > self.most_samples:
            text = "query processing would load too many samples into memory in query execution"
            raise Refused(422, {"status": "error", "errorType": "execution", "error": text})
        self.largest_answer = max(self.largest_answer, count)
        by = re.match(r"count by \((\w+)\)", query)
        if by:
            names = sorted({one["metric"].get(by[1], "") for one in result})
            return {"resultType": "vector", "result": [{"metric": {by[1]: n}, "value": [now, "1"]} for n in names]}
        if query.startswith("count("):
            return self._counted(len(result), now)
        return {"resultType": "matrix", "result": result}

    def _counted(self, count: int, now: float) -> Any:
        result = [{"metric": {}, "value": [now, str(count)]}] if count else []
        return {"resultType": "vector", "result": result}

    def _selected(self, name: str | None, matchers: str) -> list[tuple[dict[str, str], list[tuple[float, str]]]]:
        wanted = [(key, sign, json.loads(f'"{value}"')) for key, sign, value in _MATCHER.findall(matchers)]
        if name:
            wanted.append(("__name__", "=", name))
        return [one for one in self.samples if all(_holds(one[0].get(key, ""), *rest) for key, *rest in wanted)]


def _holds(found: str, sign: str, wanted: str) -> bool:
    if sign == "=":
        return found == wanted
    return found != wanted if sign == "!=" else re.fullmatch(wanted, found) is not None


@dataclass
class Jaeger:
    """Traces as the query API returns them: the newest first, up to the limit."""

    traces: list[dict[str, Any]] = field(default_factory=list)
    before_answer: Callable[[str], None] = lambda path: None
    errors: list[Any] = field(default_factory=list)

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        self.before_answer(path)
        if path == "/api/services":
            names = {one["serviceName"] for trace in self.traces for one in trace["processes"].values()}
            return {"data": sorted(names) or None, "total": len(names), "errors": None}
        if path != "/api/traces":
            raise Refused(404, b"404 page not found")
        if self.errors:
            return {"data": None, "errors": self.errors}
        service, tags = params["service"][0], json.loads(params.get("tags", ["{}"])[0])
        start, end, limit = (int(params[name][0]) for name in ("start", "end", "limit"))
        least_us = 1e6 * float(params.get("minDuration", ["0s"])[0].removesuffix("s"))
        chosen = [trace for trace in self.traces if _matches(trace, service, start, end, tags, least_us)]
        chosen.sort(key=lambda trace: -min(span["startTime"] for span in trace["spans"]))
        return {"data": chosen[:limit], "total": 0, "limit": 0, "offset": 0, "errors": None}


def _matches(
    trace: Mapping[str, Any], service: str, start: int, end: int, tags: Mapping[str, str], least_us: float
) -> bool:
    for span in trace["spans"]:
        process = trace["processes"][span["processID"]]
        found = {tag["key"]: tag["value"] for tag in [*span["tags"], *process["tags"]]}
        is_tagged = all(found.get(key) == value for key, value in tags.items())
        is_within = start <= span["startTime"] <= end and span["duration"] >= least_us
        if process["serviceName"] == service and is_within and is_tagged:
            return True
    return False


@pytest.fixture
def serve() -> Iterator[Callable[[Handler], JsonServer]]:
    """Start servers on loopback, which stop after the test."""
    started: list[JsonServer] = []

    def start(answer: Handler) -> JsonServer:
        started.append(JsonServer(answer))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def prometheus() -> Prometheus:
    """An empty Prometheus, to be filled and served."""
    return Prometheus()


@pytest.fixture
def jaeger() -> Jaeger:
    """An empty Jaeger, to be filled and served."""
    return Jaeger()


@dataclass
class ApiServer:
    """The part of an API server that discovery and the checks use."""

    services: list[dict[str, Any]] = field(default_factory=list)
    behind: dict[str, Handler] = field(default_factory=dict)
    """By namespace/service:port."""
    nodes: list[dict[str, Any]] = field(default_factory=list)
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Resource and verb of what the user may not do."""

    def add_service(self, place: str, answer: Handler | None = None, *, port_name: str = "", **labels: str) -> None:
        namespace, _, rest = place.partition("/")
        name, _, port = rest.partition(":")
        self.services.append(
            {
                "metadata": {"namespace": namespace, "name": name, "labels": labels},
                "spec": {"ports": [{"port": int(port), "name": port_name, "protocol": "TCP"}]},
            }
        )
        if answer is not None:
            self.behind[place] = answer

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        proxied = re.fullmatch(r"/api/v1/namespaces/([\w-]+)/services/((?:https:)?[\w-]+:\w+)/proxy(/.*)", path)
        if proxied:
            answer = self.behind.get(f"{proxied[1]}/{proxied[2].removeprefix('https:')}")
            if answer is None:
                reason = {"kind": "Status", "status": "Failure", "message": "no endpoints available", "code": 503}
                raise Refused(503, reason)
            return answer(method, proxied[3], params, body)
        match path:
            case "/version":
                return {"gitVersion": "v1.31.2", "major": "1", "minor": "31"}
            case "/api/v1/services":
                if ("services", "list") in self.refused:
                    text = 'services is forbidden: User "u" cannot list resource "services" at the cluster scope'
                    raise Refused(403, {"kind": "Status", "message": text, "code": 403})
                return {"items": self.services}
            case "/api/v1/nodes":
                return {"items": self.nodes}
            case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
                asked = json.loads(body)["spec"]["resourceAttributes"]
                resource = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
                return {"status": {"allowed": (resource, asked["verb"]) not in self.refused}}
        raise Refused(404, {"kind": "Status", "message": f"{path} not found", "code": 404})


@pytest.fixture
def api_server() -> ApiServer:
    """An API server without anything, to be filled."""
    return ApiServer()


@pytest.fixture
def connect(serve: Callable[[Handler], JsonServer], tmp_path: Path) -> Callable[..., Api]:
    """Serve an API server and return a connection to it."""

    def start(answer: Handler, *, retry_timeout_s: float = 0.0) -> Api:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": serve(answer).url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return Api(str(file), retry_timeout_s=retry_timeout_s)

    return start


@pytest.fixture(scope="session")
def api() -> Api:
    """The cluster of KUBECONFIG; without one the test is skipped."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("needs a cluster in KUBECONFIG")
    return Api(retry_timeout_s=10.0)


@pytest.fixture
def object_server() -> ObjectServer:
    """An API server that keeps objects, without any."""
    return ObjectServer(Refused, Broken)


@pytest.fixture
def refused() -> type[Refused]:
    """Raised by a handler to answer with an error."""
    return Refused


@pytest.fixture
def broken() -> type[Broken]:
    """Raised by a handler to break the connection in the middle of its answer."""
    return Broken
