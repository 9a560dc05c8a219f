"""The load as a separate process, controlled over a Unix socket or, in a pod, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.ipc.channel import serve
from faultset.collector.load.episode_load import (
    BeginLoad,
    ChangeLoad,
    EpisodeLoad,
    LoadStatistics,
    ReadStatistics,
    StopLoad,
)
from faultset.collector.load.http_driver import serve_http
from faultset.collector.load.traffic import CONSTANT_TRAFFIC
from faultset.collector.runtime.app_code import read_app
from faultset.collector.runtime.environment import allow_many_files
from faultset.core.errors import FaultsetError

_REPLY_TIME_S = 0.1


def main(argv: Sequence[str] | None = None) -> int:
    """Send load until `stop` or SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-load", description="Send load to an application.")
    parser.add_argument("--app", type=Path, required=True, help="the application's spec")
    parser.add_argument("--target", required=True, help="base URL of the application's entry, http://ADDRESS:PORT")
    parser.add_argument("--results", type=Path, required=True, help="file for the result of each request")
    parser.add_argument("--socket", type=Path, help="Unix socket for requests to change or stop the load")
    parser.add_argument("--bind", help="address to send from")
    parser.add_argument("--http", type=int, help="port to serve results on; sending starts on request")
    parser.add_argument("--mix", help="workload mix; required without --http")
    parser.add_argument("--rate", type=float, help="requests per second; required without --http")
    parser.add_argument("--seed", type=int, help="seed of the requests; required without --http")
    parser.add_argument("--traffic", default=CONSTANT_TRAFFIC.to_json(), help="pattern and regions as JSON")
    arguments = parser.parse_args(argv)
    random.seed()
    begin_request = None
    if arguments.http is None:
        if None in (arguments.mix, arguments.rate, arguments.seed):
            parser.error("--mix, --rate and --seed are required without --http")
        begin_request = BeginLoad(
            mix=arguments.mix, rate_rps=arguments.rate, seed=arguments.seed, traffic=arguments.traffic
        )
    allow_many_files()
    try:
        return asyncio.run(_run(arguments, begin_request))
    except FaultsetError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code


async def _run(arguments: argparse.Namespace, begin_request: BeginLoad | None) -> int:
    app = read_app(arguments.app.read_text(encoding="utf-8"), str(arguments.app))
    load = EpisodeLoad(app, arguments.target, arguments.bind, arguments.results)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, load.ended.set)
    if begin_request is not None:
        load.begin(begin_request)

    async def stop(request: StopLoad) -> LoadStatistics:
        counts = await load.stop(request)
        # leave time to send the reply
        asyncio.get_running_loop().call_later(_REPLY_TIME_S, load.ended.set)
        return counts

    server = None
    if arguments.socket:
        requests = {ChangeLoad: load.change, ReadStatistics: load.statistics, StopLoad: stop}
        server = await serve(arguments.socket, requests)
    web_server = None if arguments.http is None else await serve_http(arguments.http, load)
    await load.ended.wait()
    if web_server is not None:
        await web_server.cleanup()
    await load.end()
    if server is not None:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
