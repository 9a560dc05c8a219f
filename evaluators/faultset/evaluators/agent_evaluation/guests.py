"""Agents of other distributions, each attempt in a process of its own that can read no file of the dataset."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from faultset.agents.models.contract import FailureKind, ModelFailure
from faultset.agents.registry import GROUP
from faultset.agents.running.contract import Agent, AgentKind, Attempt, AttemptOver
from faultset.agents.runs.record import STATUSES
from faultset.core.code.identity import code_places
from faultset.core.interpreter import import_path, python_command
from faultset.core.plugins import plugins
from faultset.core.printable import printable
from faultset.core.scratch import scratch
from faultset.evaluators.agent_evaluation.guest_process import MOST_BYTES
from faultset.evaluators.execution.runners.confinement import dataset_places

_MODULE = "faultset.evaluators.agent_evaluation.guest_process"
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Variables of the environment that a guest gets: none of them is a key."""
_FAILURES: tuple[FailureKind, ...] = ("server", "context", "no_tools", "request")


def is_guest(name: str) -> bool:
    """Whether an agent comes with another distribution."""
    plugin = plugins(GROUP).get(name)
    return plugin is not None and not plugin.built_in


class GuestAgent:
    """An agent whose code runs in a process of its own, and reaches its attempt over a pipe.

    Parameters
    ----------
    inner
        The agent, for what it says of itself.
    episode
        Folder of the episode, whose dataset is hidden.
    silence_s
        Longest time without a word from it.
    hidden
        More files and folders that it must not read.
    """

    def __init__(self, inner: Agent, episode: str, silence_s: float, hidden: tuple[str, ...] = ()) -> None:
        self._inner, self._episode, self._silence_s, self._hidden = inner, episode, silence_s, hidden
        self.name, self.title, self.version = inner.name, inner.title, inner.version
        self.kind: AgentKind = inner.kind
        self.needs_model, self.stochastic = inner.needs_model, inner.stochastic

    def act(self, attempt: Attempt) -> None:
        """Start its process, carry out what it asks for, and end the process."""
        with scratch("agent") as folder, self._started(folder) as (process, requests, replies):
            begin = {
                "agent": self.name,
                "parent": os.getpid(),
                "problem": asdict(attempt.problem),
                "scratch": folder,
                "code": [str(place) for place in code_places(type(self._inner), plugins(GROUP).get(self.name))],
                "hidden": [*dataset_places(Path(self._episode)), *self._hidden],
            }
            with contextlib.suppress(OSError):
                requests.send_bytes(json.dumps(begin).encode())
            while True:
                message = self._received(process, replies)
                if "ended" in message:
                    _raise_ending(message)
                    return
                with contextlib.suppress(OSError):
                    requests.send_bytes(json.dumps(_carried_out(attempt, message)).encode())

    def _received(self, process: subprocess.Popen[bytes], replies: Connection) -> dict[str, Any]:
        try:
            if not replies.poll(self._silence_s):
                raise AttemptOver("timeout", f"no word from the agent's code for {self._silence_s:g} s")
            message = json.loads(replies.recv_bytes(MOST_BYTES))
        except (EOFError, OSError):
            code = process.wait(timeout=10)
            raise AttemptOver("harness_error", f"the agent's process ended with code {code}") from None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise AttemptOver("harness_error", "the agent's process wrote something else than a request")
        return message

    @contextmanager
    def _started(self, folder: str) -> Iterator[tuple[subprocess.Popen[bytes], Connection, Connection]]:
        child_in, ours_out = os.pipe()
        ours_in, child_out = os.pipe()
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {"HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = import_path()
        try:
            process = subprocess.Popen(
                python_command("-m", _MODULE, str(child_out), str(child_in)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(child_in, child_out),
                start_new_session=True,
                cwd=tempfile.gettempdir(),
                env=environment,
            )
        finally:
            os.close(child_in)
            os.close(child_out)
        requests, replies = Connection(ours_out, readable=False), Connection(ours_in, writable=False)
        try:
            yield process, requests, replies
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            requests.close()
            replies.close()


def _carried_out(attempt: Attempt, message: dict[str, Any]) -> dict[str, Any]:
    """Call a tool or ask the model, and return what came of it."""
    state: dict[str, Any] = {}
    try:
        if "call" in message:
            answer = attempt.call(str(message["call"]), _arguments(message.get("arguments")))
            state["found"] = asdict(answer)
        else:
            messages, tools = _objects(message.get("ask")), _objects(message.get("tools"))
            state["found"] = asdict(attempt.ask(messages, tools, role=str(message.get("role", "act"))))
    except AttemptOver as over:
        state["over"] = [over.status, over.reason]
    except ModelFailure as failure:
        if failure.kind not in _FAILURES:
            raise
        state["failure"] = [failure.kind, str(failure)]
    return state | {"answered": attempt.answered, "last_step": attempt.last_step}


def _arguments(value: Any) -> dict[str, Any] | str | None:
    return value if value is None or isinstance(value, dict | str) else json.dumps(value)


def _objects(value: Any) -> Sequence[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _raise_ending(message: dict[str, Any]) -> None:
    """Raise how the agent's code ended, where it did not end well."""
    kind: Literal["server"] | FailureKind
    if isinstance(message.get("failure"), list) and len(message["failure"]) == 2:
        kind = message["failure"][0] if message["failure"][0] in _FAILURES else "server"
        raise ModelFailure(kind, printable(str(message["failure"][1]))[:500])
    ended = message["ended"]
    if isinstance(ended, list) and len(ended) == 2:
        status = ended[0] if ended[0] in STATUSES and ended[0] != "ok" else "harness_error"
        raise AttemptOver(status, printable(str(ended[1]))[:2000])
