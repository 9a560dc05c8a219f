"""Operations compiled from a service's spec, and the handlers of the requests that call them."""

from __future__ import annotations

import asyncio
import json
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from faultset.collector.runtime.builds import HEALTHY, Defects
from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.caller import earliest, now, time_left, within
from faultset.collector.runtime.http.server import Handler, HttpRequest, Response
from faultset.collector.runtime.http.status import BadRequest, Code, RpcError, http_status
from faultset.collector.runtime.http.tracing import Span, format_ids
from faultset.collector.runtime.steps.step import compile_steps
from faultset.collector.spec.app import Operation
from faultset.collector.spec.routes import find_route

_CLIENT_GONE = 499


@dataclass(frozen=True, kw_only=True)
class ServedOperation:
    """One operation, ready to be served."""

    run: Callable[[RequestContext], Awaitable[Any]]
    """Runs the operation and returns its reply."""
    log: str
    """Text of the line that is logged for every request."""
    location: str
    """Location in the modelled source code, shown in log lines."""
    span: str | None = None
    """Name of the server's span; None for the default."""
    observed: bool = True
    """Whether requests produce a span and a log line."""


def compile_operation(name: str, operation: Operation, service: ServiceContext) -> ServedOperation:
    """Return an operation, with its steps compiled; its name is the default text and location in log lines."""
    location = operation.location or name
    steps = compile_steps(operation.steps, service, location)

    async def run(request: RequestContext) -> Any:
        if operation.deadline_s is not None:
            request.deadline = earliest(request.deadline, now() + operation.deadline_s)
        if operation.work_ms:
            service.cpu.work(operation.work_ms)
        if request.deadline is None:
            await steps(request)
        else:
            async with within(request.deadline, service.persona):
                await steps(request)
        return request.reply

    return ServedOperation(
        run=run, log=operation.log or name, location=location, span=operation.span, observed=operation.observed
    )


def _json_reply(status: int, value: Any) -> Response:
    return Response(status, json.dumps(value).encode(), "application/json")


def _failure_reply(code: Code, message: str) -> Response:
    return _json_reply(http_status(code), {"code": int(code), "message": message})


def rpc_handler(operations: Mapping[str, ServedOperation], service: ServiceContext) -> Handler:
    log, tracing, metrics, persona = service.log, service.tracing, service.metrics, service.persona
    active, style = metrics.active("POST"), persona.spans

    async def handle(request: HttpRequest) -> Response:
        path = request.path
        served = operations.get(path)
        if served is None:
            return _failure_reply(Code.UNIMPLEMENTED, persona.unknown_operation(path))
        body, deadline = request.body, _read_deadline(request)
        if not served.observed:
            return await _respond_unobserved(served, body, deadline)
        span = tracing.server(served.span or path, request.headers, style.call_attributes)
        log.trace(served.location, f"{served.log} {format_ids(span)}")
        start, code, message = time.perf_counter(), Code.OK, ""
        active.inc()
        try:
            return _json_reply(
                200, await served.run(RequestContext(values=json.loads(body), trace=span, deadline=deadline))
            )
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
            if style.reports_outcome:
                span.set_attributes(style.outcome_attributes(code))
                if style.is_server_error(code):
                    span.fail(message)
            span.end()
            metrics.observe_request(path, "POST", str(http_status(code)), time.perf_counter() - start)
        return _failure_reply(code, message)

    return handle


def http_handler(operations: Mapping[str, ServedOperation], service: ServiceContext) -> Handler:
    log, tracing, metrics, persona = service.log, service.tracing, service.metrics, service.persona

    async def handle(request: HttpRequest) -> Response:
        method = request.method
        route = find_route(request.path, operations, method)
        attributes = {**persona.spans.endpoint_attributes, "http.method": method, "http.url": request.url}
        if route is None:
            log.warning(request.path, f"no operation serves {method} {request.path}")
            tracing.server(f"HTTP {method}", request.headers, {**attributes, "http.status_code": 404}).end()
            metrics.observe_request("unknown", method, "404", 0.0)
            return Response(404, b"404 page not found\n")
        served = operations[route.operation]
        path = route.operation.removeprefix(f"{method} ")
        span = tracing.server(served.span or f"HTTP {method} {path}", request.headers, attributes)
        log.write(persona.request_level, served.location, f"{served.log} {format_ids(span)}")
        start, response = time.perf_counter(), None
        active = metrics.active(method)
        active.inc()
        try:
            response = await respond(served, request, route.values, span)
            return response
        finally:
            status = _CLIENT_GONE if response is None else response.status
            if response is None:
                log.warning(served.location, f"client closed the connection before the response to {method} {path}")
            active.dec()
            span.set_attributes({"http.status_code": status})
            if persona.spans.is_endpoint_error(status):
                span.fail()
            span.end()
            metrics.observe_request(path, method, str(status), time.perf_counter() - start)

    async def respond(served: ServedOperation, request: HttpRequest, path: Mapping[str, str], span: Span) -> Response:
        try:
            values = {**request.query, **_parse_body(request), **path}
            deadline = _read_deadline(request)
            return _json_reply(200, await served.run(RequestContext(values=values, trace=span, deadline=deadline)))
        except BadRequest as error:
            return Response(error.status, f"{error}\n".encode())
        except RpcError as error:
            return Response(500, f"{persona.format_failure(error)}\n".encode())
        except Exception as error:
            traceback.print_exc()
            return Response(500, f"{error}\n".encode())

    return handle


def _read_deadline(request: HttpRequest) -> float | None:
    """Return the deadline that the caller has set; None if it has set none."""
    left_s = time_left(request.headers)
    return None if left_s is None else now() + left_s


async def _respond_unobserved(served: ServedOperation, body: bytes, deadline: float | None) -> Response:
    try:
        context = RequestContext(values=json.loads(body), trace=None, deadline=deadline)
        return _json_reply(200, await served.run(context))
    except RpcError as error:
        return _failure_reply(error.code, error.description)


def _parse_body(request: HttpRequest) -> dict[str, Any]:
    """Return the fields of the form or JSON object in the body."""
    body = request.body
    if not body:
        return {}
    if request.content_type == "application/x-www-form-urlencoded":
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    if request.content_type == "application/json":
        try:
            values = json.loads(body)
        except ValueError:
            raise BadRequest(400, "the body must be JSON") from None
        if not isinstance(values, dict):
            raise BadRequest(400, "the body must be a JSON object")
        return values
    return {}


def with_delay(served: ServedOperation, delay: Callable[[], Awaitable[None]]) -> ServedOperation:
    async def run(request: RequestContext) -> Any:
        await delay()
        return await served.run(request)

    return replace(served, run=run)


def with_defects(served: ServedOperation, defects: Defects, has_served: asyncio.Event) -> ServedOperation:
    """Return an operation with the defects of a build; its first request sets `has_served`."""
    if defects == HEALTHY:
        return served

    async def run(request: RequestContext) -> Any:
        has_served.set()
        if random.random() < defects.failing_share:
            raise RpcError(Code.INTERNAL, "runtime error: index out of range")
        if random.random() < defects.waiting_share:
            await asyncio.sleep(defects.wait_s)
        return await served.run(request)

    return replace(served, run=run)
