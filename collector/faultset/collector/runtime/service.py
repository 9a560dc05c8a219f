"""`faultset-service NAME`: one service of an application, with the behaviour that its spec describes.

It starts, logs and fails in the order and with the texts of the Go program that it stands for. Everything is made
inside `main`, so that a process which has imported this module can be forked.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from faultset.collector.runtime import registry
from faultset.collector.runtime.builds import defects
from faultset.collector.runtime.environment import Environment, allow_many_files, environment
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.names import Names
from faultset.collector.runtime.http.server import Handler, Served, http_handler, rpc_handler
from faultset.collector.runtime.operations import Surroundings, compile_operation
from faultset.collector.runtime.signals.logs import Log
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.signals.tracing import Tracing
from faultset.collector.runtime.stores.startup import open_databases, read_indexes, store_clients
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.files import parse
from faultset.core.errors import FaultsetError, UsageError

METRICS_PORT = 9464
_DRAIN_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-service", description="Run one service of an application.")
    parser.add_argument("name", help="service, as the application's spec names it")
    arguments = parser.parse_args(argv)
    random.seed()
    allow_many_files()
    told = environment()
    try:
        app = _load(told.spec)
        service = app.service(arguments.name)
        if not service.program[0].endswith("service"):
            raise UsageError(f"{service.name} is a {service.kind}, not a service; run {' '.join(service.program)}")
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return asyncio.run(_run(app, service, told))


def _load(path: str) -> AppSpec:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the application's spec: {error}; set FAULTSET_APP to its path") from None
    return parse(text, path)


async def _run(app: AppSpec, service: ServiceSpec, told: Environment) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if service.kind == "infrastructure":
        await registry.run(host=told.listen, port=service.port, stop=stop)
        return 0
    running = _Running(app, service, told)
    life = asyncio.create_task(running.start())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((life, stopped), return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        life.result()
        await stopped
    life.cancel()
    await running.end()
    return 0


class _Running:
    """One running service."""

    def __init__(self, app: AppSpec, service: ServiceSpec, told: Environment):
        self.app, self.service, self.told = app, service, told
        self.log = Log(app.log_level)
        self.names = Names(told.hosts)
        self.metrics = Metrics()
        self.tracing = Tracing(
            service=service.name,
            pod=told.pod,
            endpoint=told.telemetry,
            local=told.address,
            sampling=app.trace_sampling,
            namespace=told.namespace,
        )
        self.runners: list[web.ServerRunner] = []
        self.leak: list[bytearray] = []
        self.leaking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Go through the start-up sequence; return when requests are served."""
        log, service, line = self.log, self.service, self._line
        wrong = defects(self.told.build)
        await self._serve(METRICS_PORT, self._exposition)
        log.info(line(28), "Tune: setGCPercent to 100")
        log.info(line(30), "Reading config...")
        if wrong.leak_mib_s:
            self.leaking = asyncio.create_task(self._leak(wrong.leak_mib_s))
        stores = store_clients(
            self.app,
            service,
            names=self.names,
            local=self.told.address,
            metrics=self.metrics,
            port=wrong.database_port,
        )
        await open_databases(self.app, service, stores, log)
        self._announce_tracing()
        caller = Caller(
            ports={name: other.port for name, other in self.app.services.items()},
            names=self.names,
            local=self.told.address,
            tracing=self.tracing,
            metrics=self.metrics,
        )
        around = Surroundings(
            caller=caller,
            stores=stores,
            databases={name: other.database or name for name, other in self.app.services.items()},
            indexes={},
            log=log,
            tracing=self.tracing,
        )
        log.info(line(75), "Starting server...")
        around.indexes.update(await read_indexes(self.app, service, stores, log))
        await self._listen(around)
        await self._register()

    def _line(self, number: int) -> str:
        return f"{self.service.caller}:{number}"

    def _announce_tracing(self) -> None:
        log, line, target = self.log, self._line, (self.told.telemetry or "none").rpartition("//")[2]
        log.info(line(49), f"Read target port: {self.service.port}")
        log.info(line(50), f"Read consul address: {self._registry_address()}")
        log.info(line(51), f"Read jaeger address: {target}")
        log.info(line(59), f"Initializing jaeger agent [service name: {self.service.name} | host: {target}]...")
        log.info("tracing/tracer.go:39", "Jaeger client: adjusted sample ratio 1.000000")
        log.info(line(64), "Jaeger agent initialized")
        log.info(line(66), f"Initializing consul agent [host: {self._registry_address()}]...")
        log.info(line(71), "Consul agent initialized")

    def _registry_address(self) -> str:
        name = self.app.registry
        return f"{name}:{self.app.services[name].port}" if name else "none"

    async def _listen(self, around: Surroundings) -> None:
        operations = {
            name: Served(run=compile_operation(operation, around), log=operation.log, caller=operation.caller)
            for name, operation in self.service.operations.items()
        }
        make = http_handler if self.service.kind == "frontend" else rpc_handler
        handler = make(operations, log=self.log, tracing=self.tracing, metrics=self.metrics)
        await self._serve(self.service.port, handler)

    async def _serve(self, port: int, handler: Handler) -> None:
        runner = web.ServerRunner(
            web.Server(handler, handler_cancellation=True, access_log=None), shutdown_timeout=_DRAIN_S
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, self.told.listen, port, backlog=1024).start()
        except OSError as error:
            reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
            self.log.fatal(self._line(86), f"failed to listen: listen tcp :{port}: bind: {reason}")
        self.runners.append(runner)

    async def _exposition(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            return web.Response(status=404)
        return web.Response(
            body=self.metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _register(self) -> None:
        service, name = self.service, self.app.registry
        if name is None or service.registry_name is None:
            return
        identity, address = str(uuid.uuid4()), self.told.listen
        caller = "registry/registry.go"
        self.log.info(
            f"{caller}:91",
            f"Trying to register service [ name: {service.registry_name}, id: {identity}, "
            f"address: {address}:{service.port} ]",
        )
        entry = {"ID": identity, "Name": service.registry_name, "Address": address, "Port": service.port}
        try:
            await registry.register(
                entry,
                registry=name,
                port=self.app.services[name].port,
                names=self.names,
                local=self.told.address,
            )
        except registry.RegistrationError as error:
            self.log.fatal(self._line(92), f"failed register: {error}")
        self.log.info(f"{caller}:99", "Successfully registered in consul")

    async def _leak(self, mib_s: float) -> None:
        while True:
            await asyncio.sleep(0.25)
            self.leak.append(bytearray(os.urandom(4096) * max(1, round(mib_s * 64))))

    async def end(self) -> None:
        """Take no more requests, finish those under way, send the last spans."""
        for runner in reversed(self.runners):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S + 1):
                    await runner.cleanup()
        await asyncio.to_thread(self.tracing.flush)


if __name__ == "__main__":
    sys.exit(main())
