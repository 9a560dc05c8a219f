"""The scripts begin with nothing large imported, so that Ctrl-C at any moment is one word."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "datasets" / "sample"
SCRIPTS = ("faultset", "collect", "evaluate")
WORDS = {"faultset": ["dataset", "show", "nowhere"], "collect": ["--faults", "all", "--apps", "hotel", "--dry-run"]}
WORDS |= {"evaluate": ["nowhere"]}
INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
from importlib.metadata import entry_points
[script] = entry_points(group="console_scripts", name={name!r})

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv = [{name!r}, *{words!r}]
script.load()()
"""


@pytest.mark.parametrize("module", ["click", "faultset.core.console", "faultset.core.plugins"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_interrupt_while_the_command_is_imported_is_one_word(name: str, module: str) -> None:
    program = INTERRUPTED_WHILE_IMPORTING.format(name=name, module=module, words=WORDS[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Interrupted\n")


PACKAGES = "(?:site-packages|collector|datasets|baselines|evaluators)"
"""Folders that hold the package, wherever they are: a clone may be called faultset, too."""


@pytest.mark.parametrize("delay_s", [0.02, 0.05, 0.1, 0.2, 0.4])
def test_an_interrupt_after_any_time_is_in_no_import_of_a_command(delay_s: float, tmp_path: Path) -> None:
    [script] = entry_points(group="console_scripts", name="faultset")
    program = f"from importlib import import_module as i; i({script.module!r}).{script.attr}()"
    words = ["dataset", "export", str(SAMPLE), str(tmp_path / "out"), "--as", "wide-csv"]
    process = subprocess.Popen([sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True)
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    if process.returncode == 130:
        assert said.endswith("Interrupted\n")
        assert "Traceback" not in said
    elif process.returncode:
        # The interpreter's own start, before the first line of ours has run, cannot be helped.
        assert "click" not in said
        assert not re.search(PACKAGES + r"/faultset/(?!core/start\.py)", said)


def test_a_job_of_the_background_that_ignores_interrupts_goes_on_ignoring_them() -> None:
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import faultset.core.start\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_the_start_imports_nothing_large() -> None:
    program = "import sys; import signal; before = set(sys.modules); import faultset.core.start\n" + (
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["faultset", "faultset.core", "faultset.core.start"], done.stderr
