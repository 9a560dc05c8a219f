"""`faultset-service NAME`: one service of an application, with the behaviour that its spec describes.

Importing this module creates no state, so that a process can import it and then fork.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import uvloop

from faultset.collector.runtime.app_code import load_persona, read_app
from faultset.collector.runtime.background import BackgroundErrorEmitter, Heap, MessageConsumer, run_task
from faultset.collector.runtime.context import FlagValues, ServiceContext, follow_flags
from faultset.collector.runtime.environment import (
    Environment,
    allow_many_files,
    environment,
    list_missing_variables,
    read_defects,
)
from faultset.collector.runtime.http.caller import Breakers, Caller, CallSettings, ClientContext, ConnectionPool
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.server import Handler, HttpRequest, HttpServer, Response
from faultset.collector.runtime.http.tracing import SpanSender, Tracing, pod_resource
from faultset.collector.runtime.persona import Registration, RegistrationError, StartLog
from faultset.collector.runtime.request_handlers import (
    compile_operation,
    http_handler,
    rpc_handler,
    with_defects,
    with_delay,
)
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.store_startup import open_databases, read_indexes, store_clients
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.containers import METRICS_PORT
from faultset.core.errors import FaultsetError, UsageError

_DRAIN_S = 5.0
_LEAK_PAUSE_S = 0.25
_FLAGS_TIMEOUT_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-service", description="Run one service of an application.")
    parser.add_argument("name", help="name of the service in the application's spec")
    arguments = parser.parse_args(argv)
    random.seed()
    allow_many_files()
    settings = environment()
    try:
        app = _load(settings.spec)
        service = app.service(arguments.name)
        if not service.program[0].endswith("service"):
            raise UsageError(
                f"{service.name} must be a service, but is a {service.kind}; run {' '.join(service.program)}"
            )
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return uvloop.run(_run(app, service, settings))


def _load(path: str) -> AppSpec:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the application's spec cannot be read: {error}; set FAULTSET_APP to its path") from None
    return read_app(text, path)


async def _run(app: AppSpec, service: ServiceSpec, settings: Environment) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if service.runs is not None:
        await load_persona(app).programs[service.runs](host=settings.listen, port=service.port, stop=stop)
        return 0
    running = _RunningService(app, service, settings)
    starting = asyncio.create_task(running.start())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        await stopped
    starting.cancel()
    await running.end()
    return 0


class _RunningService:
    def __init__(self, app: AppSpec, service: ServiceSpec, settings: Environment):
        self.app, self.service, self.settings = app, service, settings
        self.persona = load_persona(app)
        self.defects = read_defects(settings.build)
        self.log = Log(self.persona, app.log_level)
        location = service.location or service.name
        self.errors = BackgroundErrorEmitter(app.background_errors, self.log, location, settings.listen)
        self.start_log = StartLog(self.persona, self.log, app, service, settings.telemetry)
        self.names = Names(
            settings.hosts,
            {name: host for name in app.services if (host := settings.find_host_override(name)) is not None},
        )
        self.metrics = Metrics(self.persona.request_histograms.get(service.name))
        self.heap = None if service.heap is None else Heap(service.heap, self.metrics, service.language)
        resource = pod_resource(service.name, settings.pod, settings.namespace)
        sender = SpanSender(resource, settings.telemetry, settings.address) if settings.telemetry else None
        self.tracing = Tracing(sender, sampling=app.trace_sampling)
        self.servers: list[HttpServer] = []
        self.leak: list[bytearray] = []
        self.has_served = asyncio.Event()
        self.background: list[asyncio.Task[None]] = []
        self.flags = FlagValues(app.flags, lambda line: self.log.write("info", service.location or service.name, line))
        self.caller: Caller | None = None

    async def start(self) -> None:
        """Run the start-up sequence; return when requests are served."""
        app, service, settings, start_log = self.app, self.service, self.settings, self.start_log
        defects = self.defects
        await self._serve(METRICS_PORT, self._respond_metrics)
        start_log.report("starting")
        for variable in list_missing_variables(service):
            start_log.report("setting-missing", variable=variable)
        if defects.leak_mib_s:
            self.background.append(asyncio.create_task(self._leak_memory(defects.leak_mib_s)))
        clients = ClientContext(names=self.names, local=settings.address, metrics=self.metrics, texts=self.persona)
        stores = store_clients(app, service, clients, database_port=defects.database_port)
        await open_databases(app, service, stores, start_log, pause_s=self.persona.login_pause_s)
        start_log.report("connecting")
        self.caller = caller = self._create_caller(clients)  # `end` closes it
        context = ServiceContext(
            caller=caller, stores=stores, indexes={}, log=self.log, tracing=self.tracing, persona=self.persona,
            metrics=self.metrics, flags=self.flags,
        )  # fmt: skip
        start_log.report("serving")
        context.indexes.update(await read_indexes(app, service, stores, start_log))
        self.flags.read_file()
        if service.port:
            await self._listen(context)
        self._begin_background(context)
        await self._register()

    def _create_caller(self, context: ClientContext) -> Caller:
        app, service, settings, defects = self.app, self.service, self.settings, self.defects
        pool = None
        if defects.pool_size:
            pool = ConnectionPool(defects.pool_size, kept_share=defects.kept_share, kept_s=defects.kept_s)
        return Caller(
            context,
            ports={name: other.port for name, other in app.services.items()},
            tracing=self.tracing,
            settings=CallSettings(
                max_age_s=self.persona.connection_age_s,
                timeout_s=settings.call_timeout_s,
                retries=settings.call_retries,
                pool=pool,
                hasty_share=app.background_errors.hasty_calls,
            ),
            spans=self.persona.spans,
            report_retry=lambda callee, error: self.log.warning(
                service.location or service.name, f"call to {callee} failed, trying again: {error}"
            ),
            breakers=Breakers(service.breakers, self.metrics, self._log_breaker),
        )

    def _log_breaker(self, callee: str, state: str) -> None:
        self.log.warning(self.service.location or self.service.name, self.persona.breaker_changed(callee, state))

    def _begin_background(self, context: ServiceContext) -> None:
        """Start the tasks, consumers and other background work."""
        service = self.service
        work = [run_task(name, task, context) for name, task in service.tasks.items()]
        for name, consumer in service.consumers.items():
            rebalances = self.app.background_errors.rebalances
            member = MessageConsumer(
                name, consumer, context, member=self.settings.pod, group=service.name, rebalances=rebalances
            )
            work.append(member.run())
        if self.app.flags is not None:

            async def call_provider(provider: str, operation: str) -> object:
                return await context.caller.call(provider, operation, {}, None, timeout_s=_FLAGS_TIMEOUT_S)

            work.append(follow_flags(self.app, service.name, self.flags, call_provider))
        work += self.errors.tasks()
        self.background += [asyncio.ensure_future(coroutine) for coroutine in work]

    async def _listen(self, context: ServiceContext) -> None:
        operations = {
            name: with_defects(
                with_delay(compile_operation(name, operation, context), self._before_request),
                self.defects,
                self.has_served,
            )
            for name, operation in self.service.operations.items()
        }
        build_handler = http_handler if self.service.kind == "frontend" else rpc_handler
        await self._serve(self.service.port, build_handler(operations, context))

    async def _before_request(self) -> None:
        if self.heap is not None:
            self.heap.allocate()
        await self.errors.delay()

    async def _serve(self, port: int, handler: Handler) -> None:
        server = HttpServer(handler)
        try:
            await server.listen(self.settings.listen, port)
        except OSError as error:
            reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
            self.start_log.report("port-taken", taken_port=port, error=reason)
        self.servers.append(server)

    async def _respond_metrics(self, request: HttpRequest) -> Response:
        if request.path == "/healthz":
            return Response(200, b"ok\n") if self.errors.is_healthy() else Response(503, b"overloaded\n")
        if request.path != "/metrics":
            return Response(404)
        return Response(200, self.metrics.exposition(), "text/plain; version=0.0.4; charset=utf-8")

    async def _register(self) -> None:
        service, settings = self.service, self.settings
        if self.app.registry is None or service.registry_name is None:
            return
        registration = Registration(
            app=self.app,
            service=service,
            identity=str(uuid.uuid4()),
            address=settings.listen,
            local_address=settings.address,
            names=self.names,
        )
        facts = {"name": service.registry_name, "identity": registration.identity, "address": settings.listen}
        self.start_log.report("registering", **facts)
        try:
            await self.persona.register(registration)
        except RegistrationError as error:
            self.start_log.report("registration-failed", error=error, **facts)
        self.start_log.report("registered", **facts)

    async def _leak_memory(self, mib_s: float) -> None:
        """Leak memory from the first request on, so that a new pod serves before it reaches its limit."""
        if self.service.port:
            await self.has_served.wait()
        while True:
            await asyncio.sleep(_LEAK_PAUSE_S)
            self.leak.append(bytearray(os.urandom(4096) * max(1, round(mib_s * 64))))

    async def end(self) -> None:
        """Stop accepting requests, finish those in progress and send the last spans."""
        for task in self.background:
            task.cancel()
        for server in reversed(self.servers):
            await server.close(_DRAIN_S)
        if self.caller is not None:
            await self.caller.close()
        await self.tracing.close()


if __name__ == "__main__":
    sys.exit(main())
