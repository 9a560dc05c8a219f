"""Containers and pods: their paths and ports, resources, probes, volumes, variables and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from faultset.collector.spec.steps import FrozenModel

SPEC_PATH = "/etc/faultset/app.yaml"
"""The application's spec; FAULTSET_APP overrides the path."""

DATA_PATH = "/data/db"
"""The files of a database; FAULTSET_DATA overrides the path."""

METRICS_PORT = 9464
"""Port on which services export their metrics."""

CREDENTIALS_PATH = "/var/run/secrets/faultset"
"""Passwords, one per file; FAULTSET_CREDENTIALS overrides the path."""

ADMINISTRATOR = "administrator"
"""File with the administrator's password, only in the store's container."""

BUILD_SEED = "build-seed"
"""File with the number that decides which build has which defect, in the containers of services."""

APPLICATION = "application"
"""File with the application's password in the store's container; in other containers, it is named after the store."""

SPANS_PORT = 4318
"""Port of the span receiver (OTLP over HTTP)."""

APP_REPOSITORY = "faultset/app"
"""Image with faultset's programs."""

PAUSE_REPOSITORY = "faultset/pause"
"""Image of the pause container."""


ConfigurationKind = Literal["ConfigMap", "Secret"]


class ConfigurationSource(FrozenModel):
    """A reference to a ConfigMap or Secret."""

    config: str | None = None
    secret: str | None = None
    """Name of the ConfigMap or of the Secret; exactly one."""
    optional: bool = False
    """Whether the container starts even if the object or key is missing."""

    @property
    def kind(self) -> ConfigurationKind:
        return "ConfigMap" if self.secret is None else "Secret"

    @property
    def source(self) -> str | None:
        """Return the name of the object; None for a literal value."""
        return self.config if self.secret is None else self.secret


class Variable(ConfigurationSource):
    """An environment variable: a literal value, or a key of a ConfigMap or Secret, read when the container starts."""

    value: str | None = None
    """The literal value."""
    key: str | None = None
    """The key of the ConfigMap or Secret."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Variable:
        origins = [name for name in ("value", "config", "secret") if getattr(self, name) is not None]
        if len(origins) != 1:
            raise ValueError(
                f"a variable must have exactly one of value, config and secret, got {' and '.join(origins) or 'none'}"
            )
        if (self.key is None) != (self.value is not None):
            raise ValueError("a variable must have key together with config or secret, and not with value")
        return self


class VariableGroup(ConfigurationSource):
    """All keys of a ConfigMap or Secret as environment variables."""

    prefix: str = ""
    """Prefix of the variables' names."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> VariableGroup:
        _require_one_origin(self)
        return self


class MountedFiles(ConfigurationSource):
    """Keys of a ConfigMap or Secret as files, updated within about a minute after the object changes."""

    items: dict[str, str] = Field(default_factory=dict)
    """File names by key, to mount only some keys or to mount them under other names."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> MountedFiles:
        _require_one_origin(self)
        return self


def _require_one_origin(source: ConfigurationSource) -> None:
    if (source.config is None) == (source.secret is None):
        raise ValueError("exactly one of config and secret must be given")


def _to_variable(value: Any) -> Any:
    """Convert a plain value to a variable; numbers become text, the only type of Kubernetes variables."""
    if isinstance(value, bool):
        raise ValueError(f"the value of a variable must be text; put {str(value).lower()} in quotes")
    return {"value": str(value)} if isinstance(value, str | int | float) else value


Environment = dict[str, Annotated[Variable, BeforeValidator(_to_variable)]]
"""Variables by name."""
ConfigTexts = dict[str, Any]
"""Contents of a ConfigMap by key: strings, or values that are written as JSON."""
SecretTexts = dict[str, str | None]
"""Contents of a Secret by key; a missing value is generated at each deployment."""


def config_data(texts: Mapping[str, Any]) -> dict[str, str]:
    """Convert the contents of a ConfigMap to strings.

    >>> config_data({"a": "text", "b": {"c": 1}})
    {'a': 'text', 'b': '{\\n  "c": 1\\n}'}
    """
    return {key: text if isinstance(text, str) else json.dumps(text, indent=2) for key, text in texts.items()}


def secret_data(texts: Mapping[str, str | None], draw: Callable[[], str]) -> dict[str, str]:
    """Return the contents of a Secret, with generated values for missing ones."""
    return {key: draw() if text is None else text for key, text in texts.items()}


class ContainerFields(FrozenModel):
    """Settings of a container."""

    image: str | None = None
    """The image, if it differs from the application's image."""
    environment: Environment = Field(default_factory=dict)
    environment_from: tuple[VariableGroup, ...] = ()
    """Environment variables: individual ones, and all keys of ConfigMaps or Secrets."""
    files: dict[str, MountedFiles] = Field(default_factory=dict)
    """ConfigMap or Secret mounted as files, by folder."""
    cpu_limit: float = Field(default=1.0, ge=0.001, le=1024.0, allow_inf_nan=False)
    memory_limit_mib: int = Field(default=256, gt=0, le=1 << 20)
    """Limits above which the container is throttled or killed."""
    cpu_request: float = Field(default=0.005, ge=0.001, le=1024.0, allow_inf_nan=False)
    memory_request_mib: int = Field(default=32, gt=0, le=1 << 20)
    """Resources that the scheduler reserves; capped by the limit."""

    def resources(self) -> dict[str, dict[str, str]]:
        """Return the requests and limits as Kubernetes quantities."""
        cpu, memory = min(self.cpu_request, self.cpu_limit), min(self.memory_request_mib, self.memory_limit_mib)
        return {
            "requests": {"cpu": f"{round(1000 * cpu)}m", "memory": f"{memory}Mi"},
            "limits": {"cpu": f"{round(1000 * self.cpu_limit)}m", "memory": f"{self.memory_limit_mib}Mi"},
        }


class InitContainer(ContainerFields):
    """An init container: it must succeed before the next one starts, and is restarted until it does."""

    name: str
    """Name of the container."""
    program: tuple[str, ...] = ()
    """Its command: an absolute path in the application's image, or a program of its own image."""
    wait_for: str | None = None
    """Service to wait for instead of running a program, until its port accepts a connection."""

    @model_validator(mode="after")
    def _validate_action(self) -> InitContainer:
        if bool(self.program) == (self.wait_for is not None):
            raise ValueError("exactly one of program and wait_for must be given")
        return self


class Probe(FrozenModel):
    """A Kubernetes probe: a TCP connection or an HTTP request."""

    path: str | None = None
    """Path of the HTTP request; by default only a connection is made."""
    port: int | None = Field(default=None, gt=0, le=65535)
    """Probed port; by default, the service's port."""
    delay_s: int = Field(default=0, ge=0)
    """Initial delay after the container's start."""
    every_s: int = Field(default=10, ge=1)
    """Period."""
    timeout_s: int = Field(default=1, ge=1)
    """Timeout."""
    failures: int = Field(default=3, ge=1)
    successes: int = Field(default=1, ge=1)
    """Consecutive failures and successes that change the container's state."""


class Storage(FrozenModel):
    """A volume for each pod of a stateful service, created on demand."""

    name: str = "data"
    """Prefix of the claims' names."""
    size: str = "1Gi"
    """Size as a Kubernetes quantity."""
    storage_class: str | None = None
    """Storage class; by default, the cluster's default class."""
