"""Fields of pods and containers that applications may set: volumes, init containers, resources."""

from __future__ import annotations

from pydantic import Field, model_validator

from faultset.collector.spec.features.configuration import Environment, MountedFiles, VariableGroup
from faultset.collector.spec.steps import FrozenModel


class ContainerFields(FrozenModel):
    """What a container is given.

    Attributes
    ----------
    image
        The image, where it is not that of the application.
    environment, environment_from
        Its variables: texts, keys of ConfigMaps and Secrets, and all keys of some of them.
    files
        ConfigMaps and Secrets as files, by the folder in which it finds them.
    cpu_limit, memory_limit_mib
        Cores and memory beyond which it is throttled, and killed.
    cpu_request, memory_request_mib
        What a node must have left for it; no more than the limit.
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
        """Return requests and limits in Kubernetes' quantities."""
        cpu, memory = min(self.cpu_request, self.cpu_limit), min(self.memory_request_mib, self.memory_limit_mib)
        return {
            "requests": {"cpu": f"{round(1000 * cpu)}m", "memory": f"{memory}Mi"},
            "limits": {"cpu": f"{round(1000 * self.cpu_limit)}m", "memory": f"{self.memory_limit_mib}Mi"},
        }


class InitContainer(ContainerFields):
    """A program that has to end well before the next one starts; it is started again while it does not.

    Attributes
    ----------
    name
        Name of the container.
    program
        Its command: a program of the image with an absolute path, or of an image of its own.
    wait_for
        A service for which is waited in place of a program, until a connection to its port can be made.
    """

    name: str
    program: tuple[str, ...] = ()
    wait_for: str | None = None

    @model_validator(mode="after")
    def _does_one_thing(self) -> InitContainer:
        if bool(self.program) == (self.wait_for is not None):
            raise ValueError("name either a program or the service that is waited for (wait_for)")
        return self


class Probe(FrozenModel):
    """A question that the cluster asks a container again and again: a connection, or an HTTP request.

    Attributes
    ----------
    path
        Path of the request; a connection is enough when left out.
    port
        Port that is asked; the service's own when left out.
    delay_s
        Seconds after the container's start before the first question.
    every_s
        Seconds between questions.
    timeout_s
        Seconds after which no answer is a failure.
    failures, successes
        How many in a row change what is thought of the container.
    """

    path: str | None = None
    port: int | None = Field(default=None, gt=0, le=65535)
    delay_s: int = Field(default=0, ge=0)
    every_s: int = Field(default=10, ge=1)
    timeout_s: int = Field(default=1, ge=1)
    failures: int = Field(default=3, ge=1)
    successes: int = Field(default=1, ge=1)


class Storage(FrozenModel):
    """A volume of its own for every pod of a stateful service, made on demand.

    Attributes
    ----------
    name
        What the claims' names begin with.
    size
        In Kubernetes' quantities.
    storage_class
        Class of the volumes; the cluster's own when left out.
    """

    name: str = "data"
    size: str = "1Gi"
    storage_class: str | None = None
