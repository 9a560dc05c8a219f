"""Environment of a service: variables, mounted files and CPU time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faultset.collector.runtime.builds import Defects, draw_builds, installed_build
from faultset.collector.spec.app import ServiceSpec
from faultset.collector.spec.containers import BUILD_SEED, CREDENTIALS_PATH, SPEC_PATH

MOUNTS = "FAULTSET_MOUNTS"
"""Environment variable: a JSON object that maps the path of each mounted folder to its actual path."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Settings of one process."""

    pod: str
    address: str | None
    """Address to listen on and to connect from (POD_IP); without it, loopback only."""
    spec: str
    hosts: str | None
    """JSON file of service names and addresses (FAULTSET_HOSTS); without it, names are resolved by DNS."""
    telemetry: str | None
    build: str
    """Tag of the image (FAULTSET_BUILD, or the version of the installed distribution)."""
    namespace: str | None = None
    """Namespace of the pod (POD_NAMESPACE), which distinguishes spans of several episodes."""
    host_overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    """Overrides of service hosts, by variable name (`RATE_HOST`)."""
    call_timeout_s: float | None = None
    """Timeout of calls for which the application sets none (RPC_TIMEOUT_MS); None for no limit."""
    call_retries: int = 0
    """Number of immediate retries of a failed call (RPC_RETRIES)."""

    def find_host_override(self, service: str) -> str | None:
        """Return the host to connect to in place of a service; None for the service itself."""
        return self.host_overrides.get(host_variable(service))

    @property
    def listen(self) -> str:
        return self.address or "127.0.0.1"


def read_defects(build: str) -> Defects:
    """Return the defects of a build, drawn with the seed in the mounted Secret, or with seed 0 without a Secret."""
    path = Path(os.environ.get("FAULTSET_CREDENTIALS") or CREDENTIALS_PATH) / BUILD_SEED
    seed = 0
    with contextlib.suppress(OSError, ValueError):
        seed = int(path.read_text(encoding="ascii"))
    return draw_builds(seed).defects_of(build)


def host_variable(service: str) -> str:
    """Return the environment variable that names another host for a service.

    >>> host_variable("product-catalog")
    'PRODUCT_CATALOG_HOST'
    """
    return f"{service.upper().replace('-', '_')}_HOST"


def environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the settings from the environment variables."""
    variables = os.environ if variables is None else variables
    return Environment(
        pod=variables.get("POD_NAME") or os.uname().nodename,
        address=variables.get("POD_IP") or None,
        spec=variables.get("FAULTSET_APP") or SPEC_PATH,
        hosts=variables.get("FAULTSET_HOSTS") or None,
        telemetry=variables.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        namespace=variables.get("POD_NAMESPACE") or None,
        build=variables.get("FAULTSET_BUILD") or installed_build() or "1.0.0",
        host_overrides={name: host for name, host in variables.items() if name.endswith("_HOST") and host},
        call_timeout_s=_read_number(variables, "RPC_TIMEOUT_MS") / 1000 or None,
        call_retries=int(_read_number(variables, "RPC_RETRIES")),
    )


def _read_number(variables: Mapping[str, str], name: str) -> float:
    """Return a variable as a number of at least zero; zero if it is not a number."""
    with contextlib.suppress(ValueError):
        return max(0.0, float(variables.get(name) or 0))
    return 0.0


def list_missing_variables(service: ServiceSpec, variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the variables that steps of a service require but that are not set."""
    variables = os.environ if variables is None else variables
    required_names = dict.fromkeys(name for _, step in service.steps() for name in step.variables_read())
    return tuple(name for name in required_names if name not in variables)


def allow_many_files() -> None:
    """Raise the limit of open files as far as allowed, because hanging requests keep connections open."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def find_mount(path: str, variables: Mapping[str, str] | None = None) -> Path:
    """Return the actual path of a file or folder in a mounted folder.

    >>> find_mount("/etc/flags/a.json", {"FAULTSET_MOUNTS": '{"/etc/flags": "/tmp/x"}'})
    PosixPath('/tmp/x/a.json')
    >>> find_mount("/etc/flags/a.json", {})
    PosixPath('/etc/flags/a.json')
    """
    folders: dict[str, str] = json.loads((os.environ if variables is None else variables).get(MOUNTS, "{}"))
    for folder in sorted(folders, key=len, reverse=True):
        if path == folder or path.startswith(f"{folder}/"):
            return Path(folders[folder] + path[len(folder) :])
    return Path(path)


class WatchedText:
    """A text file that is read again if it has changed; its content is None while the file does not exist."""

    def __init__(self, path: Path):
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._text: str | None = None

    def read(self) -> str | None:
        """Return the text; None if the file does not exist."""
        try:
            status = os.stat(self.path)
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version != self._version:
                self._text, self._version = self.path.read_text(encoding="utf-8"), version
        except OSError:
            self._text = self._version = None
        return self._text


class CpuAccount:
    """Tracks this thread's CPU time, so that each operation uses its configured `work_ms` in total.

    The CPU time since the last call, which was spent on requests, spans and log lines, counts towards `work_ms`; `work`
    uses only the remainder.
    """

    def __init__(self) -> None:
        self._charged_s = time.thread_time()

    def work(self, cpu_ms: float) -> None:
        """Use CPU time until the operation has used `cpu_ms`."""
        used_s = time.thread_time() - self._charged_s
        use_cpu(cpu_ms - used_s * 1000)
        self._charged_s = time.thread_time()


def use_cpu(cpu_ms: float) -> None:
    """Use CPU time of this thread, which takes longer on a busy or throttled machine."""
    if cpu_ms <= 0:
        return
    end = time.thread_time() + cpu_ms / 1000
    block = bytes(512)
    while time.thread_time() < end:
        block = hashlib.sha512(block).digest() * 8
