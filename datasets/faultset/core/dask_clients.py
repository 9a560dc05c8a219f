"""Connect to a running dask scheduler, and explain problems with the scheduler or its workers in one line."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from faultset.core.errors import PlatformError, UsageError

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_TIMEOUT_S = 10
_WORKER_TIMEOUT_S = 60
_ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^\s/:]+:\d+|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d+")


@contextlib.contextmanager
def connect_client(address: str, folder: str | None, probe: Callable[[], object]) -> Iterator[Client]:
    """Yield a client of a dask scheduler whose workers can run `probe` and have the folder.

    Parameters
    ----------
    address
        For instance `tcp://10.0.0.5:8786`.
    folder
        Folder that must exist on all workers, if any.
    probe
        Called on each worker; imports what the worker needs.

    Raises
    ------
    UsageError
        The address is wrong, or its certificates are missing.
    PlatformError
        The scheduler does not answer, or has no suitable workers.
    """
    from distributed import Client

    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f'"{address}" is not the address of a dask scheduler; give its protocol, host and port, for instance '
            "tcp://10.0.0.5:8786"
        )
    _check_certificates(address)
    with silence_dask():
        try:
            client = Client(address, timeout=_CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise PlatformError(
                f"no dask scheduler answered at {address} within {_CONNECT_TIMEOUT_S} s; "
                'start one with "dask scheduler", or leave out --scheduler'
            ) from error
        except TypeError as error:
            # dask raises TypeError if the package of a protocol is missing
            raise PlatformError(
                f"dask does not support {address.partition(':')[0]} here ({str(error)[:100]}); install the package for "
                "it, or use tcp:// or tls://"
            ) from error
        try:
            _check_workers(client, address, folder, probe)
            yield client
        finally:
            client.close(timeout=5)


def _check_certificates(address: str) -> None:
    """Refuse an encrypted address if dask's configuration has no readable certificates."""
    import ssl

    from distributed.security import Security

    if not address.startswith(("tls://", "wss://")):
        return
    remedy = "set distributed.comm.tls in dask's configuration: ca-file, client.cert and client.key"
    try:
        ssl_context = Security().get_connection_args("client").get("ssl_context")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UsageError(f"the certificates for {address} cannot be read ({error}); {remedy}") from error
    if ssl_context is None:
        raise UsageError(f"{address} needs certificates, but dask has none; {remedy}")


def list_connection_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions raised for tasks whose scheduler is gone or whose workers died repeatedly."""
    import asyncio
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    return asyncio.CancelledError, CancelledError, KilledWorker, CommClosedError, TimeoutError


@contextlib.contextmanager
def silence_dask() -> Iterator[None]:
    """Silence dask's log messages, for instance about closed connections after Ctrl-C."""
    names = ("distributed", "distributed.worker", "distributed.scheduler", "distributed.core", "tornado.application")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _check_workers(client: Client, address: str, folder: str | None, probe: Callable[[], object]) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKER_TIMEOUT_S)
    except TimeoutError as error:
        raise PlatformError(
            f"the dask scheduler at {address} has no workers after {_WORKER_TIMEOUT_S} s; "
            f'start some with "dask worker {address}"'
        ) from error
    try:
        client.run(probe)
        has_folder: Any = client.run(os.path.isdir, folder) if folder is not None else {}
    except Exception as error:
        # if a worker cannot import a module, dask reports that only in the message
        if not isinstance(error, ImportError) and "ModuleNotFoundError" not in str(error):
            raise
        raise PlatformError(
            f"a dask worker of {address} cannot import faultset ({error}); install the same release there"
        ) from error
    failing = sorted(worker for worker, exists in has_folder.items() if not exists)
    if failing:
        raise PlatformError(
            f"{len(failing)} of {len(has_folder)} dask workers do not have the folder {folder} (first: {failing[0]}); "
            "put the dataset on storage that all of them share"
        )
