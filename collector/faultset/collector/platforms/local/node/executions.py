"""Commands that run in containers beside their main processes."""

from __future__ import annotations

import os
import selectors
import signal

from faultset.collector.ipc.server import DeferredAnswer
from faultset.collector.platforms.local.node.containers import Container, send
from faultset.collector.platforms.local.node.messages import ExecutionResult

_READ = 1 << 16


class Execution:
    """One command; its answer waits for its end, not for that of what it leaves in the background.

    Parameters
    ----------
    pid
        Its process.
    container
        Where it runs.
    reply
        What is answered.
    deadline
        When it is ended, in monotonic seconds.
    output
        What it prints comes out of this file descriptor, which is closed here.
    selector
        Loop of the node.
    """

    def __init__(
        self,
        pid: int,
        container: Container,
        reply: DeferredAnswer[ExecutionResult],
        *,
        deadline: float,
        output: int,
        selector: selectors.BaseSelector,
    ):
        self.pid, self.container, self._reply, self._deadline = pid, container, reply, deadline
        self._output, self._selector, self._text = output, selector, b""
        os.set_blocking(output, False)
        selector.register(output, selectors.EVENT_READ, lambda _: self._capture())

    def ended(self, code: int) -> None:
        """Answer with the exit code and the output so far."""
        self._capture()
        self._close()
        self._reply.resolve(ExecutionResult(code=code, output=self._text.decode(errors="replace")))

    def fail(self, why: str) -> None:
        """Answer that it could not be done."""
        self._close()
        self._reply.fail(why)

    def expire(self, now: float) -> None:
        """End the command when its time is over."""
        if now >= self._deadline:
            self._reply.fail("the command did not end in time")
            send(os.kill, self.pid, signal.SIGKILL)

    def _capture(self) -> None:
        if self._output < 0:
            return
        try:
            while data := os.read(self._output, _READ):
                self._text += data
        except BlockingIOError:
            return
        self._close()

    def _close(self) -> None:
        if self._output >= 0:
            self._selector.unregister(self._output)
            os.close(self._output)
            self._output = -1
