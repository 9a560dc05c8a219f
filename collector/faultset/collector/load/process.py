"""The load as a process of its own, with commands over a Unix socket or, in a pod, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.ipc.channel import serve
from faultset.collector.load.driver import LoadDriverClass, LoadTarget, driver_class
from faultset.collector.load.generator import Generator
from faultset.collector.load.http_server import serve_http
from faultset.collector.load.messages import ChangeLoad, LoadStatistics, ReadStatistics, StopLoad
from faultset.collector.load.results import ResultFile
from faultset.collector.load.schedule import Schedule
from faultset.collector.load.workloads.regions import RegionalDriver
from faultset.collector.load.workloads.traffic import CONSTANT_TRAFFIC, Traffic
from faultset.collector.runtime.app_code import read_app
from faultset.collector.runtime.environment import allow_many_files
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import FaultsetError

_REPLY_S = 0.1
TIMEOUT_S = 30.0
"""How long a client waits for an answer; a request that took longer has the outcome `timeout`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Send load until `stop` or SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-load", description="Send open-loop load to an application.")
    parser.add_argument("--app", type=Path, required=True, help="the application's spec")
    parser.add_argument("--mix", required=True)
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--target", required=True, help="base URL of the entry, http://ADDRESS:PORT")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--socket", type=Path, help="Unix socket for requests to change or stop the load")
    parser.add_argument("--bind", help="address from which to send")
    parser.add_argument("--http", type=int, help="port on which to serve results and take the same requests")
    parser.add_argument("--traffic", default=CONSTANT_TRAFFIC.to_json(), help="pattern and regions as JSON")
    arguments = parser.parse_args(argv)
    random.seed()
    if arguments.rate <= 0:
        parser.error(f"--rate must be above zero; found {arguments.rate:g}")
    try:
        app = read_app(arguments.app.read_text(encoding="utf-8"), str(arguments.app))
        traffic = Traffic.from_json(arguments.traffic)
        schedule = Schedule(app, arguments.mix, arguments.seed, horizon_s=traffic.pattern.horizon_s)
        driver = driver_class(app)
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    allow_many_files()
    return asyncio.run(_run(app, schedule, driver, traffic, arguments))


async def _run(
    app: AppSpec, schedule: Schedule, driver: LoadDriverClass, traffic: Traffic, arguments: argparse.Namespace
) -> int:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    target = LoadTarget(
        url=arguments.target, local_address=arguments.bind, timeout_s=TIMEOUT_S, options=app.load.options
    )
    results = ResultFile(arguments.results, schedule.endpoints)
    seed, sender = arguments.seed, driver(target)

    def schedule_of(user: int) -> Schedule:
        return Schedule(app, arguments.mix, seed + (user + 1) * 2**32, horizon_s=traffic.pattern.horizon_s)

    generator = Generator(
        schedule,
        results,
        driver=RegionalDriver(sender, traffic.regions, seed) if traffic.regions else sender,
        rate_rps=arguments.rate,
        pattern=traffic.pattern,
        seed=seed,
        schedule_of=schedule_of,
    )
    sending = asyncio.create_task(generator.run())
    sending.add_done_callback(lambda task: None if task.cancelled() else ended.set())

    async def stop(request: StopLoad) -> LoadStatistics:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        counts = generator.statistics()
        await generator.close()
        if not arguments.http:
            ended.set()
        return counts

    server = None
    if arguments.socket:
        server = await serve(
            arguments.socket, {ChangeLoad: generator.change, ReadStatistics: generator.statistics, StopLoad: stop}
        )
    web = await serve_http(arguments.http, arguments.results, generator, stop) if arguments.http else None
    await ended.wait()
    if web is not None:
        await web.cleanup()
    if sending.cancelled():
        await asyncio.sleep(_REPLY_S)
    elif sending.done():
        sending.result()
    else:
        await stop(StopLoad())
    if server is not None:
        server.close()
    return 0
