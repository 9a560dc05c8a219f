"""Serves the operations of one service: RPCs as JSON over HTTP, or the HTTP endpoints of a frontend."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from faultset.collector.runtime.http.status import BadRequest, Code, RpcError, http_status, response_class
from faultset.collector.runtime.operations import Scope
from faultset.collector.runtime.signals.logs import Log
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.signals.tracing import Tracing, fail, ids_of

_GONE = 499

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class Served:
    """One operation as the server sees it."""

    run: Callable[[Scope], Awaitable[Any]]
    log: str
    caller: str


def _json(status: int, value: Any) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")


def rpc_handler(operations: Mapping[str, Served], *, log: Log, tracing: Tracing, metrics: Metrics) -> Handler:
    """Return the handler of a service that others call."""
    active = metrics.active("POST")

    def failed(code: Code, message: str) -> web.Response:
        return _json(http_status(code), {"code": int(code), "message": message})

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        served = operations.get(path)
        if served is None:
            service = path.strip("/").partition("/")[0]
            return failed(Code.UNIMPLEMENTED, f"unknown service {service}")
        body = await request.read()
        span, context = tracing.server(path, request.headers, {"component": "gRPC"})
        ids = ids_of(span)
        log.trace(served.caller, f"{served.log} {ids}")
        start, code, message = time.perf_counter(), Code.OK, ""
        active.inc()
        try:
            return _json(200, await served.run(Scope(known=json.loads(body), context=context, ids=ids)))
        except RpcError as error:
            code, message = error.code, error.description
        except BadRequest as error:
            code, message = Code.UNKNOWN, str(error)
        except asyncio.CancelledError:
            code = Code.CANCELED
            raise
        except Exception as error:
            traceback.print_exc()
            code, message = Code.INTERNAL, str(error)
        finally:
            active.dec()
            span.set_attributes({"response_code": int(code), "response_class": response_class(code)})
            if response_class(code) == "5xx":
                fail(span, message)
            span.end()
            metrics.server(path, "POST", str(http_status(code))).observe(time.perf_counter() - start)
        return failed(code, message)

    return handle


def http_handler(operations: Mapping[str, Served], *, log: Log, tracing: Tracing, metrics: Metrics) -> Handler:
    """Return the handler of a frontend; its spans never carry an error, whatever it answers."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        served = operations.get(path)
        if served is None:
            return web.Response(status=404, text="404 page not found\n")
        attributes = {"component": "net/http", "http.method": method, "http.url": str(request.url)}
        span, context = tracing.server(f"HTTP {method} {path}", request.headers, attributes)
        ids = ids_of(span)
        log.trace(served.caller, f"{served.log} {ids}")
        start, response = time.perf_counter(), None
        active = metrics.active(method)
        active.inc()
        try:
            response = await answer(served, Scope(known=dict(request.query), context=context, ids=ids))
            return response
        finally:
            status = _GONE if response is None else response.status
            active.dec()
            span.set_attribute("http.status_code", status)
            span.end()
            metrics.server(path, method, str(status)).observe(time.perf_counter() - start)

    async def answer(served: Served, scope: Scope) -> web.Response:
        try:
            return _json(200, await served.run(scope))
        except BadRequest as error:
            return web.Response(status=error.status, text=f"{error}\n")
        except RpcError as error:
            return web.Response(status=500, text=f"{error}\n")
        except Exception as error:
            traceback.print_exc()
            return web.Response(status=500, text=f"{error}\n")

    return handle
