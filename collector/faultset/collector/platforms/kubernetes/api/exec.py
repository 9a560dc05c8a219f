"""Running a command in a container, over the API server's websocket."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from faultset.collector.platforms.kubernetes.api.client import Api, refusal
from faultset.core.errors import PlatformError

_TIMEOUT_S = 30.0


def import_client() -> None:
    """Import what `run_in_pod` needs, which takes longer than all else that the platform imports."""
    import kubernetes.client
    import kubernetes.stream  # noqa: F401


def run_in_pod(api: Api, namespace: str, pod: str, container: str, argv: Sequence[str]) -> str:
    """Return what the command printed.

    Raises
    ------
    PlatformError
        It ended with another code than 0, took longer than half a minute, or could not be started.
    """
    from kubernetes.client import CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import stream
    from kubernetes.stream.ws_client import ERROR_CHANNEL

    core = CoreV1Api(api.fresh_client())
    where = f"{argv[0]} in pod {pod}"
    try:
        answer: Any = stream(
            core.connect_get_namespaced_pod_exec,
            pod,
            namespace,
            command=list(argv),
            container=container,
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
    except ApiException as error:
        raise refusal(error, "POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/exec") from None
    except OSError as error:
        raise PlatformError(f"{where} could not be started: {' '.join(str(error).split())[:200]}") from None
    printed, deadline = [], time.monotonic() + _TIMEOUT_S
    try:
        while answer.is_open():
            answer.update(timeout=0.5)
            for has, read in ((answer.peek_stdout, answer.read_stdout), (answer.peek_stderr, answer.read_stderr)):
                if has():
                    printed.append(read())
            if time.monotonic() > deadline:
                raise PlatformError(f"{where} did not end within {_TIMEOUT_S:g} s")
        code = exit_code(answer.read_channel(ERROR_CHANNEL), where)
    finally:
        answer.close()
        if answer.sock:
            # a client whose server has hung up first keeps its socket
            answer.sock.shutdown()
    output = "".join(printed)
    if code:
        raise PlatformError(f"{where} ended with code {code}: {' '.join(output.split())[-400:] or 'no output'}")
    return output


def exit_code(status: str, where: str) -> int:
    """Return with which code a command has ended, by what the API server says at its end.

    >>> exit_code('{"status": "Success"}', "ls in pod geo")
    0

    Parameters
    ----------
    status
        The object `Status` of the connection's error channel, as JSON; empty where the connection broke.
    where
        The command and its pod, for the error.

    Raises
    ------
    PlatformError
        It was not started, or nobody knows how it has ended.
    """
    try:
        found = json.loads(status)
        if found["status"] == "Success":
            return 0
        causes: list[dict[str, str]] = (found.get("details") or {}).get("causes") or []
        codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
        if codes:
            return int(codes[0])
        said = str(found.get("message") or causes[0]["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise PlatformError(f"{where} ended without a code: {' '.join(status.split())[:200] or 'no answer'}") from None
    raise PlatformError(f"{where} could not be started: {' '.join(said.split())[:200]}")
