"""Settings that the platform gives to a process of the application through its environment."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

from faultset.collector.runtime.builds import installed_build
from faultset.collector.spec.containers import SPEC_PATH


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
        Where the pod runs (POD_NAMESPACE), by which spans of several episodes can be told apart.
    build:
        Tag of the image (FAULTSET_BUILD, or what is installed).
    """

    pod: str
    address: str | None
    spec: str
    hosts: str | None
    telemetry: str | None
    build: str
    namespace: str | None = None

    @property
    def listen(self) -> str:
        """Address to listen on."""
        return self.address or "127.0.0.1"


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
    )


def allow_many_files() -> None:
    """Let this process have as many connections as the machine allows: hanging requests hold theirs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
