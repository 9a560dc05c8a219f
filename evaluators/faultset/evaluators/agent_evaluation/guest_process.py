"""The process of an agent that another distribution brings: it has the pipe to its attempt, and no file of the dataset.

Started by `guests.py` with two inherited pipes. What passes is JSON in both directions.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, cast

from faultset.agents.models.contract import FailureKind, Message, ModelFailure, ModelReply, RequestedCall
from faultset.agents.registry import reference_agent
from faultset.agents.running.contract import AgentProblem, AttemptOver
from faultset.core.errors import in_one_sentence
from faultset.core.processes import die_with_parent
from faultset.datasets.tools.tool_answers import AnswerStatus, ToolAnswer
from faultset.evaluators.execution.runners.confinement import confine_method
from faultset.evaluators.execution.runners.messages import MethodProcess

MOST_BYTES = 64 << 20
"""Of one message."""
_MOST_MEMORY = 8 << 30


class GuestAttempt:
    """An attempt whose tools and model are at the other end of a pipe."""

    def __init__(self, problem: AgentProblem, requests: Connection, replies: Connection) -> None:
        self.problem = problem
        self.random = random.Random(problem.seed)
        self._requests, self._replies = requests, replies
        self.answered = False
        self.last_step = False

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        given = arguments if arguments is None or isinstance(arguments, str) else dict(arguments)
        found = self._exchanged({"call": str(name), "arguments": given})
        return ToolAnswer(status=cast("AnswerStatus", found["status"]), text=found["text"], cursor=found["cursor"])

    def ask(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), *, role: str = "act"
    ) -> ModelReply:
        found = self._exchanged({"ask": list(messages), "tools": list(tools), "role": str(role)})
        calls = tuple(RequestedCall(**call) for call in found.pop("calls"))
        return ModelReply(calls=calls, **found)

    def _exchanged(self, request: dict[str, Any]) -> dict[str, Any]:
        self._requests.send_bytes(json.dumps(request).encode())
        reply = json.loads(self._replies.recv_bytes(MOST_BYTES))
        self.answered, self.last_step = reply["answered"], reply["last_step"]
        if "over" in reply:
            raise AttemptOver(*reply["over"])
        if "failure" in reply:
            kind, text = reply["failure"]
            raise ModelFailure(cast("FailureKind", kind), text)
        return reply["found"]


def main() -> None:
    """Let the agent act on what comes over the pipes, and say how that ended."""
    requests = Connection(int(sys.argv[1]), readable=False)
    replies = Connection(int(sys.argv[2]), writable=False)
    begin = json.loads(replies.recv_bytes(MOST_BYTES))
    die_with_parent(begin["parent"])
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    confine_method(
        MethodProcess(
            key="agent",
            built_in=False,
            episodes=(),
            tables=(),
            code=tuple(begin["code"]),
            hidden=tuple(begin["hidden"]),
        ),
        begin["scratch"],
    )
    os.chdir(begin["scratch"])
    given = begin["problem"]
    problem = AgentProblem(**given | {name: tuple(given[name]) for name in ("candidates", "tools")})
    ending: dict[str, Any] = {"ended": None}
    try:
        reference_agent(begin["agent"]).act(GuestAttempt(problem, requests, replies))
    except AttemptOver as over:
        ending = {"ended": [over.status, over.reason]}
    except ModelFailure as failure:
        ending = {"ended": None, "failure": [failure.kind, str(failure)]}
    except BaseException as error:  # whatever an agent's code does is a status of its run
        ending = {"ended": ["harness_error", f"the agent's code failed: {in_one_sentence(error)}"[:2000]]}
    with contextlib.suppress(OSError):
        requests.send_bytes(json.dumps(ending).encode())


if __name__ == "__main__":
    main()
