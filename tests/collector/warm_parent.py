"""Forks programs of the application from one warm parent, told by lines of JSON; they end with it."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import traceback

from faultset.collector.runtime import processes, service
from faultset.collector.runtime.stores import server

PROGRAMS = {"faultset-service": service.main, "faultset-store": server.main, "faultset-work": processes.main}


def child(order: dict, parent: int) -> int:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    output = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.setpgid(0, 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    program, *arguments = order["argv"]
    try:
        return PROGRAMS[program](arguments)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 70


def main() -> None:
    parent = os.getpid()
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = child(order, parent)
            sys.stdout.flush()
            os._exit(code)
        print(pid, flush=True)


main()
