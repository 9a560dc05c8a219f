"""Settings of pods and containers: resources, init containers, probes, volumes."""

from __future__ import annotations

from pydantic import Field, model_validator

from faultset.collector.spec.features.configuration import Environment, MountedFiles, VariableGroup
from faultset.collector.spec.steps import FrozenModel


class ContainerFields(FrozenModel):
    """Settings of a container.

    Attributes
    ----------
    image
        The image, if it differs from the application's image.
    environment, environment_from
        Environment variables: individual ones, and all keys of ConfigMaps or Secrets.
    files
        ConfigMap or Secret mounted as files, by folder.
    cpu_limit, memory_limit_mib
        Limits above which the container is throttled or killed.
    cpu_request, memory_request_mib
        Resources that the scheduler reserves; capped by the limit.
    """

    image: str | None = None
    environment: Environment = Field(default_factory=dict)
    environment_from: tuple[VariableGroup, ...] = ()
    files: dict[str, MountedFiles] = Field(default_factory=dict)
    cpu_limit: float = Field(default=1.0, ge=0.001, le=1024.0, allow_inf_nan=False)
    memory_limit_mib: int = Field(default=256, gt=0, le=1 << 20)
    cpu_request: float = Field(default=0.005, ge=0.001, le=1024.0, allow_inf_nan=False)
    memory_request_mib: int = Field(default=32, gt=0, le=1 << 20)

    def resources(self) -> dict[str, dict[str, str]]:
        """Return the requests and limits as Kubernetes quantities."""
        cpu, memory = min(self.cpu_request, self.cpu_limit), min(self.memory_request_mib, self.memory_limit_mib)
        return {
            "requests": {"cpu": f"{round(1000 * cpu)}m", "memory": f"{memory}Mi"},
            "limits": {"cpu": f"{round(1000 * self.cpu_limit)}m", "memory": f"{self.memory_limit_mib}Mi"},
        }


class InitContainer(ContainerFields):
    """An init container: it must succeed before the next one starts, and is restarted until it does.

    Attributes
    ----------
    name
        Name of the container.
    program
        Its command: an absolute path in the application's image, or a program of its own image.
    wait_for
        Service to wait for instead of running a program, until its port accepts a connection.
    """

    name: str
    program: tuple[str, ...] = ()
    wait_for: str | None = None

    @model_validator(mode="after")
    def _validate_action(self) -> InitContainer:
        if bool(self.program) == (self.wait_for is not None):
            raise ValueError("exactly one of program and wait_for must be given")
        return self


class Probe(FrozenModel):
    """A Kubernetes probe: a TCP connection or an HTTP request.

    Attributes
    ----------
    path
        Path of the HTTP request; by default only a connection is made.
    port
        Probed port; by default, the service's port.
    delay_s
        Initial delay after the container's start.
    every_s
        Period.
    timeout_s
        Timeout.
    failures, successes
        Consecutive failures and successes that change the container's state.
    """

    path: str | None = None
    port: int | None = Field(default=None, gt=0, le=65535)
    delay_s: int = Field(default=0, ge=0)
    every_s: int = Field(default=10, ge=1)
    timeout_s: int = Field(default=1, ge=1)
    failures: int = Field(default=3, ge=1)
    successes: int = Field(default=1, ge=1)


class Storage(FrozenModel):
    """A volume for each pod of a stateful service, created on demand.

    Attributes
    ----------
    name
        Prefix of the claims' names.
    size
        Size as a Kubernetes quantity.
    storage_class
        Storage class; by default, the cluster's default class.
    """

    name: str = "data"
    size: str = "1Gi"
    storage_class: str | None = None
