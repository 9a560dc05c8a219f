"""`faultset-wait SERVICE:PORT`: ends when a connection can be made."""

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
    """Wait; return the exit code."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Wait until a service can be reached.")
    parser.add_argument("address", metavar="SERVICE:PORT")
    host, _, port = parser.parse_args(argv).address.rpartition(":")
    if not host or not port.isdigit():
        print(f"Error: what is waited for is SERVICE:PORT; found {host}:{port}", file=sys.stderr)
        return 2
    asyncio.run(wait_for(host, int(port)))
    return 0


async def wait_for(host: str, port: int, *, pause_s: float = _PAUSE_S) -> None:
    """Return once a connection to a service can be made; a line says each time that it cannot."""
    given = environment()
    names = Names(given.hosts)
    local = (given.address, 0) if given.address else None
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
