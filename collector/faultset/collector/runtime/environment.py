"""Environment of a service: variables, mounted files and an account of its CPU time."""

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


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Settings of one process.

    Attributes
    ----------
    address:
        Where to listen and from where to connect (POD_IP); on this machine alone when it is not given.
    hosts:
        JSON file of service names and addresses (FAULTSET_HOSTS); DNS when it is not given.
    namespace:
        Namespace of the pod (POD_NAMESPACE), which distinguishes spans of several episodes.
    build:
        Tag of the image (FAULTSET_BUILD, or of the installed distribution).
    hosts_instead:
        Hosts that are dialled in place of the names of services, by the variables that say so (`RATE_HOST`).
    call_timeout_s:
        How long a call waits for its answer where the application does not say (RPC_TIMEOUT_MS); for ever without.
    call_retries:
        How often a call that has failed is repeated at once (RPC_RETRIES).
    """

    pod: str
    address: str | None
    spec: str
    hosts: str | None
    telemetry: str | None
    build: str
    namespace: str | None = None
    hosts_instead: Mapping[str, str] = field(default_factory=dict[str, str])
    call_timeout_s: float | None = None
    call_retries: int = 0

    def host_instead(self, service: str) -> str | None:
        """Return the host that is dialled in place of a service's name; None when it is the service itself."""
        return self.hosts_instead.get(host_variable(service))

    @property
    def listen(self) -> str:
        """Address to listen on."""
        return self.address or "127.0.0.1"


def read_defects(build: str) -> Defects:
    """Return the defects of a build, by the seed in the mounted Secret; by seed 0 without one."""
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
    """Read the environment, at the time of the call."""
    found = os.environ if variables is None else variables
    return Environment(
        pod=found.get("POD_NAME") or os.uname().nodename,
        address=found.get("POD_IP") or None,
        spec=found.get("FAULTSET_APP") or SPEC_PATH,
        hosts=found.get("FAULTSET_HOSTS") or None,
        telemetry=found.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        namespace=found.get("POD_NAMESPACE") or None,
        build=found.get("FAULTSET_BUILD") or installed_build() or "1.0.0",
        hosts_instead={name: host for name, host in found.items() if name.endswith("_HOST") and host},
        call_timeout_s=_number(found, "RPC_TIMEOUT_MS") / 1000 or None,
        call_retries=int(_number(found, "RPC_RETRIES")),
    )


def _number(variables: Mapping[str, str], name: str) -> float:
    """Return a number at or above zero; zero without one."""
    with contextlib.suppress(ValueError):
        return max(0.0, float(variables.get(name) or 0))
    return 0.0


def absent_variables(service: ServiceSpec, variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the variables that steps of a service cannot do without and that are not set."""
    found = os.environ if variables is None else variables
    needed = dict.fromkeys(name for _, step in service.steps() for name in step.variables_read())
    return tuple(name for name in needed if name not in found)


def allow_many_files() -> None:
    """Let this process have as many connections as the machine allows: hanging requests hold theirs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


VARIABLE = "FAULTSET_MOUNTS"
"""Environment variable: a JSON object from the path of each mounted folder to where it is."""


def mounted(path: str, variables: Mapping[str, str] | None = None) -> Path:
    """Return where a file or folder is that the manifest names by a path.

    >>> mounted("/etc/flags/a.json", {"FAULTSET_MOUNTS": '{"/etc/flags": "/tmp/x"}'})
    PosixPath('/tmp/x/a.json')
    >>> mounted("/etc/flags/a.json", {})
    PosixPath('/etc/flags/a.json')
    """
    places: dict[str, str] = json.loads((os.environ if variables is None else variables).get(VARIABLE, "{}"))
    for folder in sorted(places, key=len, reverse=True):
        if path == folder or path.startswith(f"{folder}/"):
            return Path(places[folder] + path[len(folder) :])
    return Path(path)


class WatchedText:
    """A text file that is read again whenever it has changed.

    Parameters
    ----------
    path
        May not exist; the text is None then.
    """

    def __init__(self, path: Path):
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._text: str | None = None

    def read(self) -> str | None:
        """Return the text; None without a file."""
        try:
            status = os.stat(self.path)
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version != self._version:
                self._text, self._version = self.path.read_text(encoding="utf-8"), version
        except OSError:
            self._text = self._version = None
        return self._text


class CpuAccount:
    """CPU time of this process that requests have not been charged with yet.

    An operation is meant to take `work_ms`. What the process has used since it last worked on purpose (for reading
    and answering requests, for spans and log lines) is part of that, and only the rest is worked.
    """

    def __init__(self) -> None:
        self._charged_s = time.thread_time()

    def work(self, cpu_ms: float) -> None:
        """Use the rest of a CPU time in milliseconds."""
        used_s = time.thread_time() - self._charged_s
        use_cpu(cpu_ms - used_s * 1000)
        self._charged_s = time.thread_time()


def use_cpu(cpu_ms: float) -> None:
    """Use CPU time of this thread, however long that takes on a busy or throttled machine; none below 0."""
    if cpu_ms <= 0:
        return
    end = time.thread_time() + cpu_ms / 1000
    block = bytes(512)
    while time.thread_time() < end:
        block = hashlib.sha512(block).digest() * 8
