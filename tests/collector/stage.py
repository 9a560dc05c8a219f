"""The application's real programs on loopback addresses, without a platform."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultset.collector.runtime.stores.redis_driver import redis_programs
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import config_data
from faultset.collector.spec.credentials import credential_secrets, decoded, secrets_of_spec
from faultset.collector.spec.features import format_flags, set_variant
from faultset.collector.spec.files import format_spec

FOLDERS = [str(Path(__file__).parents[2] / part) for part in ("collector", "datasets")]
BASIC = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(FOLDERS)}


class Process:
    """One started program, which is a child of the warm_parent."""

    def __init__(self, pid: int, log: Path):
        self.pid, self._log = pid, log

    @property
    def log(self) -> str:
        """Everything it has written."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def alive(self) -> bool:
        """Whether it runs; one that has ended stays a zombie of the warm_parent."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    @property
    def exit_code(self) -> int:
        """Exit code of a process that has ended."""
        status = int(Path(f"/proc/{self.pid}/stat").read_text().split()[-1])
        return os.waitstatus_to_exitcode(status)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        os.kill(self.pid, number)


class WarmParent:
    """The warm parent of all programs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_parent.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=BASIC,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout
        assert self._answers.readline() == "ready\n"

    def fork(self, order: dict[str, Any]) -> int:
        """Start a program; return its process id."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        return int(self._answers.readline())

    def close(self) -> None:
        """End it, and with it everything it has started."""
        self._orders.close()
        self._process.wait(timeout=10)
        self._answers.close()


def _texts(secret: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a Secret by key."""
    return {key: decoded(text) for key, text in secret["data"].items()}


class Stage:
    """Addresses, a hosts file and the programs that were started."""

    def __init__(self, folder: Path, app: AppSpec, warm_parent: WarmParent, telemetry: str | None = None):
        self.folder, self.app, self.warm_parent, self.telemetry = folder, app, warm_parent, telemetry
        # addresses that no other process of the tests has
        self.prefix = f"127.{77 + int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:])}.{random.randrange(1, 250)}"
        self.addresses = {
            name: f"{self.prefix}.{number}" for number, name in enumerate([*app.services, "outside"], start=1)
        }
        self.write_hosts(self.addresses)
        (folder / "app.yaml").write_text(format_spec(app))
        shared, *own = credential_secrets(app) or [{"data": {}}]
        self._shared = _texts(shared)
        self._own = {one["metadata"]["name"].removesuffix("-credentials"): _texts(one) for one in own}
        self._configuration: dict[Any, dict[Any, str]] = {
            ("ConfigMap", key): config_data(texts) for key, texts in app.configs.items()
        }
        self._configuration |= {("Secret", one["metadata"]["name"]): _texts(one) for one in secrets_of_spec(app)}
        self._started: list[Process] = []

    def write_hosts(self, addresses: dict[str, str]) -> None:
        """Replace the hosts file."""
        draft = self.folder / "hosts.new"
        draft.write_text(json.dumps(addresses))
        draft.rename(self.folder / "hosts.json")

    def environment(self, name: str, build: str = "1.0.0") -> dict[str, str]:
        """Return what a platform puts into the environment of a pod."""
        data = self.folder / "data" / name
        data.mkdir(parents=True, exist_ok=True)
        credentials = self.folder / "credentials" / name
        credentials.mkdir(parents=True, exist_ok=True)
        for key, password in self._own.get(name, self._shared).items():
            (credentials / key).write_text(password)
        given = {
            **BASIC,
            "POD_NAME": f"{name}-6d9c8b7f4-x2k4f",
            "POD_IP": self.addresses[name],
            "FAULTSET_APP": str(self.folder / "app.yaml"),
            "FAULTSET_HOSTS": str(self.folder / "hosts.json"),
            "FAULTSET_DATA": str(data),
            "FAULTSET_CREDENTIALS": str(credentials),
            "FAULTSET_BUILD": build,
        }
        mounts = {}
        if self.app.flags is not None:
            flags = self.folder / "flags"
            if not flags.exists():
                flags.mkdir()
                (flags / self.app.flags.file).write_text(format_flags(self.app.flags))
            mounts[self.app.flags.folder] = str(flags)
        service = self.app.services.get(name)
        for number, (path, mounted) in enumerate(service.files.items() if service else ()):
            folder = self.folder / "files" / name / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            texts = self._configuration[mounted.kind, mounted.source]
            for key, file in (mounted.items or {key: key for key in texts}).items():
                (folder / file).write_text(texts[key])
            mounts[path] = str(folder)
        given["FAULTSET_MOUNTS"] = json.dumps(mounts)
        for variable, origin in (service.environment if service else {}).items():
            given[variable] = origin.value or self._configuration[origin.kind, origin.source][origin.key]
        return given | ({"OTEL_EXPORTER_OTLP_ENDPOINT": self.telemetry} if self.telemetry else {})

    def start(self, name: str, *, build: str = "1.0.0", argv: list[str] | None = None) -> Process:
        """Start the program of a service."""
        log = self.folder / f"{name}-{len(self._started)}.log"
        order = {
            "argv": argv or list(self.app.services[name].program),
            "env": self.environment(name, build),
            "cwd": str(self.folder),
            "log": str(log),
        }
        process = Process(self.warm_parent.fork(order), log)
        self._started.append(process)
        return process

    def start_all(self, *names: str) -> dict[str, Process]:
        """Start services (all of them without names) and wait until each listens."""
        processes = {name: self.start(name) for name in names or self.app.services}
        for name in processes:
            if self.app.services[name].port:
                self.wait(lambda name=name: self.listens(name), f"{name} listens")
        return processes

    def listens(self, name: str) -> bool:
        """Return whether a service accepts connections."""
        try:
            with socket.create_connection((self.addresses[name], self.app.services[name].port), timeout=1):
                return True
        except OSError:
            return False

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
        """Return once something holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not happen within {timeout_s:g} s\n{self.logs()}")
            time.sleep(0.01)

    def logs(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(f"== {log.name}\n{log.read_text()[-400:]}" for log in sorted(self.folder.glob("*.log")))

    def ask(self, path: str, method: str = "GET", timeout_s: float = 20.0, /, **parameters: str) -> tuple[int, str]:
        """Send a request to the entry; return status and body."""
        entry = self.app.entry
        url = f"http://{self.addresses[entry.service]}:{entry.port}{path}?{urllib.parse.urlencode(parameters)}"
        request = urllib.request.Request(url, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self, name: str) -> str:
        """Return the metrics of a service."""
        with urllib.request.urlopen(f"http://{self.addresses[name]}:9464/metrics", timeout=9) as response:
            return response.read().decode()

    def end(self, process: Process, name: str) -> None:
        """End a program, and wait until nobody listens at its address."""
        process.end()
        self.wait(lambda: not self.listens(name), f"the end of {name}")

    def log_in(self, timeout_s: float = 9.0) -> tuple[int, str]:
        """Log in a user of the hotel."""
        return self.ask("/user", "POST", timeout_s, username="Cornell_3", password="3333333333")

    def set_flag(self, name: str, variant: str) -> None:
        """Change the file of flags, as an edit of its ConfigMap does."""
        assert self.app.flags is not None
        file = self.folder / "flags" / self.app.flags.file
        draft = self.folder / "flags.new"
        draft.write_text(set_variant(file.read_text(), name, variant))
        draft.rename(file)

    def search(self, **change: str) -> tuple[int, str]:
        """Search for hotels where there are some."""
        parameters = {"inDate": "2015-04-09", "outDate": "2015-04-11", "lat": "38.0", "lon": "-122.12"} | change
        return self.ask("/hotels", "GET", 20.0, **parameters)

    def redis(self, store: str, *words: str) -> str:
        """Run a command in a store as its administrator."""
        cli = redis_programs().cli
        assert cli is not None
        service = self.app.services[store]
        argv = [cli, "-h", self.addresses[store], "-p", str(service.port), "--user", "root", "--no-auth-warning"]
        password = {**os.environ, "REDISCLI_AUTH": self._own[store]["administrator"]}
        return subprocess.run([*argv, *words], capture_output=True, text=True, check=True, env=password).stdout.strip()

    def close(self) -> None:
        """End everything."""
        for process in self._started:
            if process.alive:
                process.end()
