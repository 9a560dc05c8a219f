"""Start the processes of an episode so that none outlives its parent.

A child asks the kernel for SIGKILL at its parent's death and then looks whether the parent is still there; run as
`python -m faultset.collector.ipc.launch PARENT MODULE:FUNCTION ARGUMENTS`.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.core.interpreter import python_command
from faultset.core.processes import die_with_parent, name_process, session_nice, set_session_nice


def environment() -> dict[str, str]:
    """Return the environment for a Python child: bytecode is cached, and our packages are found."""
    import faultset

    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    roots = [str(Path(part).parent) for part in faultset.__path__]
    before = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*roots, *before]))
    return env


def launch(function: str, arguments: Sequence[Any], *, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Run `module:function(*arguments)` in a process and session of its own that dies with the calling thread."""
    command = python_command("-m", __name__, str(os.getpid()), function, json.dumps(list(arguments)))
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment(),
            start_new_session=True,
        )
    if nice := session_nice():
        set_session_nice(nice, process.pid)
    return process


def call(function: str, arguments: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> Any:
    """Import and call `module:function`."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments, **(keywords or {}))


def main() -> None:
    """Die with the parent, then become what the arguments name."""
    parent, function, arguments = sys.argv[1:]
    die_with_parent(int(parent))
    # what they write, passwords of stores among it, is for this user alone
    os.umask(0o077)
    name_process(function.partition(":")[0].rpartition(".")[2])
    call(function, json.loads(arguments))


if __name__ == "__main__":
    main()
