"""`faultset-wait SERVICE:PORT`: wait until a service accepts connections."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from faultset.collector.runtime.environment import environment
from faultset.collector.runtime.http.client import Names

PROGRAM = "faultset-wait"
_PAUSE_S = 1.0
_TIMEOUT_S = 30.0


def main(argv: Sequence[str] | None = None) -> int:
    """Wait until the service accepts connections; return the exit code."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Wait until a service accepts connections.")
    parser.add_argument("address", metavar="SERVICE:PORT")
    host, _, port = parser.parse_args(argv).address.rpartition(":")
    if not host or not port.isdigit():
        print(f"Error: the address must be SERVICE:PORT, but is {host}:{port}", file=sys.stderr)
        return 2
    asyncio.run(wait_for(host, int(port)))
    return 0


async def wait_for(host: str, port: int, *, pause_s: float = _PAUSE_S) -> None:
    """Return once a service accepts a connection; print a line after each failed attempt."""
    settings = environment()
    names = Names(settings.hosts)
    local = (settings.address, 0) if settings.address else None
    while True:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                _, writer = await asyncio.open_connection(await names.address(host), port, local_addr=local)
        except (OSError, TimeoutError):
            print(f"waiting for {host}", flush=True)
            await asyncio.sleep(pause_s)
        else:
            writer.close()
            return


if __name__ == "__main__":
    sys.exit(main())
