"""What all containers of a service's pods have: an image, variables, files, requests and limits."""

from __future__ import annotations

from pydantic import Field

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
