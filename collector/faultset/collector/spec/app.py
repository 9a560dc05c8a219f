"""An application as data: services, their calls and stores, behaviour on errors, endpoints and workload."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PrivateAttr

from faultset.collector.spec.background_errors import BackgroundErrors
from faultset.collector.spec.collections import Collection
from faultset.collector.spec.features.behaviour import BackgroundWork, CircuitBreaker, Consumer, FlagSettings, Task
from faultset.collector.spec.features.configuration import ConfigTexts, SecretTexts
from faultset.collector.spec.features.heap import HeapUse, Language
from faultset.collector.spec.features.operators import OperatorSettings
from faultset.collector.spec.features.pods import ContainerFields, InitContainer, Probe, Storage
from faultset.collector.spec.steps import CalledOperation, FrozenModel, Place, StepModel, Steps, all_steps
from faultset.collector.spec.variation import Variation
from faultset.collector.spec.workload import Mix, RequestSpec
from faultset.core.suggestions import unknown_name

DEFAULT_IMAGE = "faultset/app:1.0.0"
Kind = Literal["frontend", "logic", "cache", "database", "broker", "infrastructure"]


class AppEntry(NamedTuple):
    """Where clients send their requests."""

    service: str
    port: int


class Operation(FrozenModel):
    """What a service does for one RPC (`/geo.Geo/Nearby`) or HTTP endpoint (`/hotels`, `/product/{id}`).

    The name of an endpoint may begin with a method: `POST /cart`.

    Attributes
    ----------
    observed
        Whether requests leave a span and a line.
    log
        Text of the line that every request writes; the operation's own name when left out.
    location
        Place in the modelled source that the operation's log lines name.
    span
        Name of the server's span; the operation's own name when left out, after the method for an HTTP endpoint.
    work_ms
        CPU time in milliseconds that it takes; what the program itself uses for a request is part of it.
    deadline_s
        Within how many seconds a request must be answered; it fails then, as do the calls for it that are under way.
    """

    log: str = ""
    location: str = ""
    span: str | None = None
    work_ms: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    deadline_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    observed: bool = True
    steps: Steps


class Seed(FrozenModel):
    """A collection that the service fills at its start when the store has none."""

    store: str
    collection: str


class Index(FrozenModel):
    """A collection kept in memory, read once at the service's start; empty when that read fails."""

    store: str
    collection: str
    error: str


class Deployed(FrozenModel):
    """Where an application runs that somebody else has deployed.

    Attributes
    ----------
    namespace
        The namespace, on the cluster of the kubeconfig.
    url
        Base URL of the entry as a pod reaches it; the entry's Service and port when left out.
    reported
        Names under which services report spans, where these differ from the label's values.
    """

    namespace: str
    url: str | None = None
    reported: dict[str, str] = Field(default_factory=dict)


class LoadSpec(FrozenModel):
    """How requests are sent: the name of a load driver, and what it needs to know."""

    driver: str = "http"
    options: dict[str, Any] = Field(default_factory=dict)


class ServiceSpec(ContainerFields):
    """One service: what runs in its container, and what that program does.

    Of a service that somebody else has deployed only name, kind and relations are given. Its name is the value of the
    application's label; `objects` gives the names of its Deployment and Service where they differ. `ContainerFields`
    says what its container is given.

    Attributes
    ----------
    program
        Command of the container. An absolute path runs a program of the image (on the embedded platform: of this
        machine), about which the runtime knows nothing: it has no operations, spans or metrics of ours.
    port
        Where it listens; none for a service that works in the background only.
    replicas
        How many pods it has.
    stateful
        Whether these have stable names (`NAME-0`, `NAME-1`), which resolve as `NAME-0.NAME-peer`, and an order.
    storage
        Of a stateful service: the volume that each pod has.
    readiness, liveness
        By what the cluster sees whether a pod gets requests, and whether a container has to be started again.
    consumers, tasks
        Its work in the background.
    init
        What has to end well before its container starts, one after the other.
    breakers
        Circuit breakers, by the service that it calls.
    runs
        Name of a program of the application's own code (`Persona.programs`) that takes the place of operations.
    metrics_port
        Port on which such a program gives metrics, at `/metrics` in the format of Prometheus; none when it gives none.
    location
        File of the modelled source that the log lines of its start name.
    registry_name
        Name under which it registers with the application's registry.
    language
        Language of the original program, which decides the names of its runtime metrics; none without such metrics.
    heap
        Memory that it allocates; each episode of a campaign draws it anew.
    connect_timeout_s
        Of a database: how many seconds its clients try to reach it; as many as its driver says when left out.
    """

    name: str
    kind: Kind
    container: str = ""
    program: tuple[str, ...] = ()
    runs: str | None = None
    metrics_port: int | None = Field(default=None, gt=0, le=65535)
    port: int = Field(default=0, ge=0, le=65535)
    objects: dict[str, str] = Field(default_factory=dict)
    replicas: int = Field(default=1, ge=0, le=100)
    stateful: bool = False
    storage: Storage | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None
    init: tuple[InitContainer, ...] = ()
    breakers: dict[str, CircuitBreaker] = Field(default_factory=dict)
    callees: tuple[str, ...] = ()
    location: str = ""
    registry_name: str | None = None
    stores: tuple[str, ...] = ()
    claim: str | None = None
    auth: Literal["password", "open"] = "open"
    database: str | None = None
    connect_timeout_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    collections: dict[str, Collection] = Field(default_factory=dict)
    seeds: tuple[Seed, ...] = ()
    indexes: dict[str, Index] = Field(default_factory=dict)
    operations: dict[str, Operation] = Field(default_factory=dict)
    consumers: dict[str, Consumer] = Field(default_factory=dict)
    tasks: dict[str, Task] = Field(default_factory=dict)
    language: Language | None = None
    heap: HeapUse | None = None

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Services that it calls: those that are given, then those of its operations, in order of first appearance."""
        return tuple(dict.fromkeys((*self.callees, *(call.service for call in self.operations_called()))))

    @property
    def peers(self) -> str:
        """Name of the headless Service behind which the pods of a stateful service have names."""
        return f"{self.name}-peer"

    @property
    def reads_store_at_start(self) -> bool:
        """Whether it answers from memory, filled only at its start, so that later faults of its store do not show."""
        return bool(self.indexes)

    @property
    def exports_metrics(self) -> bool:
        """Whether its process has a metrics endpoint of its own."""
        return self.kind in ("frontend", "logic")

    @property
    def store_driver(self) -> str | None:
        """Name of the store driver that its program starts; None when it is no store of ours."""
        program, name = (*self.program, "", "")[:2]
        return name or None if program == "faultset-store" else None

    @property
    def background(self) -> dict[str, BackgroundWork]:
        """Consumers and tasks by name."""
        return {**self.consumers, **self.tasks}

    def steps(self) -> Iterator[tuple[Place, StepModel]]:
        """Yield the steps of operations, consumers and tasks, with their places in the service."""
        parts = {"operations": self.operations, "consumers": self.consumers, "tasks": self.tasks}
        for part, found in parts.items():
            for name, work in found.items():
                yield from all_steps(work.steps, (part, name, "steps"))

    def operations_called(self) -> Iterator[CalledOperation]:
        """Yield the calls of all its operations, consumers and tasks."""
        for _, step in self.steps():
            yield from step.operations_called()


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: {**service, "name": name} if isinstance(service, dict) else service for name, service in value.items()
        }
    return value


class AppSpec(FrozenModel):
    """A whole application.

    Everything that depends on the application is here or in its own code; the runtime, the manifests and the load know
    none of it.

    Attributes
    ----------
    code
        Where its own steps and its persona are: the name of a package, or the path of a folder, with `operations.py`
        or `persona.py`; none when it needs neither.
    registry
        Service by which services announce themselves when they start, in the way that the persona knows.
    flags
        Feature flags that its steps read; none when left out.
    operator
        An operator that makes some of its services from a custom resource; none when left out.
    configs, secrets
        ConfigMaps and Secrets by name, which services refer to in `environment` and `files`.
    background_errors
        How often it errs without a fault; each episode of a campaign draws these rates anew.
    """

    name: str
    title: str
    version: str
    image: str = DEFAULT_IMAGE
    code: str | None = None
    deployed: Deployed | None = None
    label_key: str = "app"
    log_level: Literal["trace", "info"] = "trace"
    trace_sampling: float = Field(default=1.0, ge=0.0, le=1.0)
    registry: str | None = None
    flags: FlagSettings | None = None
    operator: OperatorSettings | None = None
    configs: dict[str, ConfigTexts] = Field(default_factory=dict)
    secrets: dict[str, SecretTexts] = Field(default_factory=dict)
    load: LoadSpec = LoadSpec()
    background_errors: BackgroundErrors = BackgroundErrors()
    entry: AppEntry
    services: Annotated[dict[str, ServiceSpec], BeforeValidator(_named)]
    requests: dict[str, RequestSpec]
    mixes: dict[str, Mix] = Field(min_length=1)
    default_mix: str
    _variation: Variation = PrivateAttr(default=Variation())

    @property
    def variation(self) -> Variation:
        """What differs between episodes; it is not written into files."""
        return self._variation

    def with_variation(self, variation: Variation, image: str) -> AppSpec:
        """Return the application as it runs in one episode, with the image that is deployed first."""
        varied = self.model_copy(update={"image": image})
        varied._variation = variation
        return varied

    @cached_property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Declared call graph: (caller, callee), stores included; the registry carries no calls."""
        return tuple(
            (service.name, callee) for service in self.services.values() for callee in (*service.calls, *service.stores)
        )

    @property
    def components(self) -> tuple[str, ...]:
        """Services that an operator makes, so that changes of their workloads begin at the custom resource."""
        return () if self.operator is None else self.operator.components

    def has_deployment(self, name: str) -> bool:
        """Say whether a service has a Deployment that nobody else is responsible for."""
        return name not in self.components and not self.services[name].stateful

    def service(self, name: str) -> ServiceSpec:
        """Return one service; raise UsageError with the nearest name for an unknown one."""
        if name not in self.services:
            raise unknown_name(f"service of {self.name}", name, self.services)
        return self.services[name]

    def stores(self, service: str) -> tuple[str, ...]:
        """Return the databases and caches that a service uses."""
        return self.service(service).stores

    def consumers(self, store: str) -> tuple[str, ...]:
        """Return the services that use a database or cache."""
        self.service(store)
        return tuple(service.name for service in self.services.values() if store in service.stores)

    def mix(self, name: str) -> Mix:
        """Return one mix; raise UsageError with the nearest name for an unknown one."""
        if name not in self.mixes:
            raise unknown_name(f"mix of {self.name}", name, self.mixes)
        return self.mixes[name]
