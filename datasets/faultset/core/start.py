"""Where the scripts `faultset`, `collect` and `evaluate` begin: Ctrl-C is one word from their first moment on.

What the commands import takes a while, and an interrupt in between would end in a traceback of somebody's imports. So
this module imports nothing but what the interpreter has anyway.
"""

import os
import signal
from types import FrameType

_INTERRUPTED = 130
_GARBAGE = (50_000, 20, 50)
"""Thresholds of the garbage collection: commands keep many objects and make few cycles."""


def faultset() -> None:
    """Run `faultset`."""
    _run("faultset.core.command_line.console", "root", "faultset")


def collect() -> None:
    """Run `collect`."""
    _run("faultset.collector.cli.collect", "collect", "collect")


def evaluate() -> None:
    """Run `evaluate`."""
    _run("faultset.evaluators.cli.evaluate", "evaluate", "evaluate")


def _run(module: str, command: str, name: str) -> None:
    import gc
    from importlib import import_module

    loaded = getattr(import_module(module), command)
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(*_GARBAGE)
    loaded.main(prog_name=name)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Interrupted\n")
    os._exit(_INTERRUPTED)


# Not where the signal is ignored, as in a job of the background.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
