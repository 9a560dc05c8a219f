"""Entry points of the scripts `faultset`, `collect` and `evaluate`.

Ctrl-C prints "Interrupted" even while the commands are still being imported. Therefore this module imports only modules
that the interpreter has already loaded.
"""

import os
import signal
from types import FrameType

_INTERRUPTED = 130
_GC_THRESHOLDS = (50_000, 20, 50)
"""Higher than the defaults, because commands create many objects and few cycles."""


def faultset() -> None:
    """Run `faultset`."""
    _run("faultset.core.console", "root", "faultset")


def collect() -> None:
    """Run `collect`."""
    _run("faultset.collector.cli.collect", "collect", "collect")


def evaluate() -> None:
    """Run `evaluate`."""
    _run("faultset.evaluators.cli.evaluate", "evaluate", "evaluate")


def _run(module: str, command: str, name: str) -> None:
    import gc
    from importlib import import_module

    click_command = getattr(import_module(module), command)
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(*_GC_THRESHOLDS)
    click_command.main(prog_name=name)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Interrupted\n")
    os._exit(_INTERRUPTED)


# A shell starts background jobs with the signal ignored; do not change that.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
