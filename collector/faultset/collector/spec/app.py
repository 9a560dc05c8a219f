"""The spec of an application: services, calls, stores, behaviour on errors, endpoints and workload."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PrivateAttr

from faultset.collector.spec.collections import Collection
from faultset.collector.spec.containers import ConfigTexts, ContainerFields, InitContainer, Probe, SecretTexts, Storage
from faultset.collector.spec.features import (
    BackgroundErrors,
    BackgroundWork,
    CircuitBreaker,
    Consumer,
    FlagSettings,
    HeapUse,
    Language,
    OperatorSettings,
    Task,
)
from faultset.collector.spec.steps import CalledOperation, FieldPath, FrozenModel, StepModel, Steps, all_steps
from faultset.collector.spec.workload import Mix, RequestSpec
from faultset.core.errors import unknown_name

SHORTEST_START_S, LONGEST_START_S = 2.0, 90.0
"""Range of the delays before the pods of a rollout become ready."""
_LOG_DELAY = NormalDist(mu=2.2, sigma=1.0)
"""Logarithm of a delay in seconds: half of the delays are below 9 s, one in fifty is above 70 s."""


@dataclass(frozen=True, kw_only=True)
class Variation:
    """The choices of one episode that affect its application."""

    seed: int = 0
    """Decides which image tag has which defect, and how long each rollout takes."""
    longest_start_s: float = LONGEST_START_S
    """Upper bound of the readiness delays, for views that are too short for longer ones; below 2 s there is no
    delay."""

    def readiness_delay_s(self, workload: str, generation: int) -> int:
        """Return how long the next rollout of a workload waits before it probes whether new pods are ready.

        Healthy and faulty rollouts draw from the same distribution: a truncated log-normal one.
        """
        if self.longest_start_s < SHORTEST_START_S:
            return 0
        position = random.Random(f"{self.seed}/{workload}/{generation}").random()
        lowest, highest = (_LOG_DELAY.cdf(math.log(delay_s)) for delay_s in (SHORTEST_START_S, self.longest_start_s))
        return round(math.exp(_LOG_DELAY.inv_cdf(lowest + position * (highest - lowest))))


DEFAULT_IMAGE = "faultset/app:1.0.0"
Kind = Literal["frontend", "logic", "cache", "database", "broker", "infrastructure"]


class AppEntry(NamedTuple):
    """The service and port that clients send requests to."""

    service: str
    port: int


class Operation(FrozenModel):
    """The behaviour of one RPC (`/geo.Geo/Nearby`) or HTTP endpoint (`/hotels`, `/product/{id}`).

    The name of an endpoint may start with a method: `POST /cart`.
    """

    log: str = ""
    """Text of the log line of a request; by default the name of the operation."""
    location: str = ""
    """Source location in the original program, shown in log lines."""
    span: str | None = None
    """Name of the server span; by default the operation's name, preceded by `HTTP` and the method for an endpoint."""
    work_ms: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """CPU time per request in milliseconds, including the overhead of the program."""
    deadline_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Seconds after which a request fails, together with its outstanding calls."""
    observed: bool = True
    """Whether requests produce a span and a log line."""
    steps: Steps


class Seed(FrozenModel):
    """A collection that the service fills at startup if the store does not have it."""

    store: str
    collection: str


class Index(FrozenModel):
    """A collection kept in memory, read once at startup; empty if that read fails."""

    store: str
    collection: str
    error: str


class Deployed(FrozenModel):
    """The location of an application that is already deployed."""

    namespace: str
    """Namespace on the cluster of the kubeconfig."""
    url: str | None = None
    """Base URL of the entry, reachable from pods; by default the entry's Service and port."""
    reported: dict[str, str] = Field(default_factory=dict)
    """`service.name` in the spans of each service, if it differs from the label's value."""


class LoadSpec(FrozenModel):
    """The load driver and its options."""

    driver: str = "http"
    options: dict[str, Any] = Field(default_factory=dict)


class ServiceSpec(ContainerFields):
    """One service: its container, and the behaviour of the program in it.

    A service that is already deployed needs only a name, a kind and relations. Its name is the value of the
    application's label; `objects` names its Deployment and Service if they differ. `ContainerFields` has further
    container settings.
    """

    name: str
    kind: Kind
    container: str = ""
    program: tuple[str, ...] = ()
    """Command of the container. An absolute path runs a program of the image (on the embedded platform, of this
    machine); such a program has no operations, spans or metrics of the runtime."""
    runs: str | None = None
    """Name of a program in the application's own code (`Persona.programs`) that replaces operations."""
    metrics_port: int | None = Field(default=None, gt=0, le=65535)
    """Port of a `runs` program with Prometheus metrics at `/metrics`; none without metrics."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port that it listens on; none for a service with only background work."""
    objects: dict[str, str] = Field(default_factory=dict)
    replicas: int = Field(default=1, ge=0, le=100)
    """Number of pods."""
    stateful: bool = False
    """Whether pods are ordered and have stable names (`NAME-0`, `NAME-1`), which resolve as `NAME-0.NAME-peer`."""
    storage: Storage | None = None
    """Volume of each pod, for a stateful service."""
    readiness: Probe | None = None
    liveness: Probe | None = None
    """Kubernetes probes."""
    init: tuple[InitContainer, ...] = ()
    """Init containers, which run in sequence."""
    breakers: dict[str, CircuitBreaker] = Field(default_factory=dict)
    """Circuit breakers by called service."""
    callees: tuple[str, ...] = ()
    location: str = ""
    """Source file of the original program, shown in log lines at startup."""
    registry_name: str | None = None
    """Name in the application's service registry."""
    stores: tuple[str, ...] = ()
    claim: str | None = None
    auth: Literal["password", "open"] = "open"
    database: str | None = None
    connect_timeout_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Connection timeout of a database's clients; by default, the driver's timeout."""
    collections: dict[str, Collection] = Field(default_factory=dict)
    seeds: tuple[Seed, ...] = ()
    indexes: dict[str, Index] = Field(default_factory=dict)
    operations: dict[str, Operation] = Field(default_factory=dict)
    consumers: dict[str, Consumer] = Field(default_factory=dict)
    tasks: dict[str, Task] = Field(default_factory=dict)
    """Background work."""
    language: Language | None = None
    """Language of the original program, which determines the names of its runtime metrics; none without such
    metrics."""
    heap: HeapUse | None = None
    """Memory that it allocates; each episode of a campaign draws a new amount."""

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Return the called services: first `callees`, then services that operations call, in order of appearance."""
        return tuple(dict.fromkeys((*self.callees, *(call.service for call in self.operations_called()))))

    @property
    def peers(self) -> str:
        """Return the name of the headless Service that gives the pods of a stateful service their names."""
        return f"{self.name}-peer"

    @property
    def reads_store_at_start(self) -> bool:
        """Return whether it responds from memory filled at startup, so that later faults of its store are invisible."""
        return bool(self.indexes)

    @property
    def exports_metrics(self) -> bool:
        """Return whether its process has a metrics endpoint."""
        return self.kind in ("frontend", "logic")

    @property
    def runs_faultset_service(self) -> bool:
        """Return whether its program is `faultset-service`, not a store or a program of the image."""
        return self.program[:1] == ("faultset-service",)

    @property
    def store_driver(self) -> str | None:
        """Return the store driver that its program starts; None if it is not a built-in store."""
        program, name = (*self.program, "", "")[:2]
        return name or None if program == "faultset-store" else None

    @property
    def background(self) -> dict[str, BackgroundWork]:
        return {**self.consumers, **self.tasks}

    def steps(self) -> Iterator[tuple[FieldPath, StepModel]]:
        """Yield the steps of operations, consumers and tasks, with their paths in the service."""
        fields = {"operations": self.operations, "consumers": self.consumers, "tasks": self.tasks}
        for field, items in fields.items():
            for name, work in items.items():
                yield from all_steps(work.steps, (field, name, "steps"))

    def operations_called(self) -> Iterator[CalledOperation]:
        """Yield the calls of all its operations, consumers and tasks."""
        for _, step in self.steps():
            yield from step.operations_called()


def _add_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: {**service, "name": name} if isinstance(service, dict) else service for name, service in value.items()
        }
    return value


class AppSpec(FrozenModel):
    """An application.

    Everything specific to an application is in its spec or its own code; runtime, manifests and load are generic.
    """

    name: str
    title: str
    version: str
    image: str = DEFAULT_IMAGE
    code: str | None = None
    """Package name, or path of a folder, with the application's own steps (`operations.py`) or persona (`persona.py`);
    none if it has neither."""
    deployed: Deployed | None = None
    label_key: str = "app"
    log_level: Literal["trace", "info"] = "trace"
    trace_sampling: float = Field(default=1.0, ge=0.0, le=1.0)
    registry: str | None = None
    """Service registry that services register with at startup, as the persona defines."""
    flags: FlagSettings | None = None
    """Feature flags that steps read."""
    operator: OperatorSettings | None = None
    """Operator that creates some of the services from a custom resource."""
    configs: dict[str, ConfigTexts] = Field(default_factory=dict)
    secrets: dict[str, SecretTexts] = Field(default_factory=dict)
    """ConfigMaps and Secrets by name, for `environment` and `files` of services."""
    load: LoadSpec = LoadSpec()
    background_errors: BackgroundErrors = BackgroundErrors()
    """Rates of errors without a fault; each episode of a campaign draws new rates."""
    entry: AppEntry
    services: Annotated[dict[str, ServiceSpec], BeforeValidator(_add_names)]
    requests: dict[str, RequestSpec]
    mixes: dict[str, Mix] = Field(min_length=1)
    default_mix: str
    _variation: Variation = PrivateAttr(default=Variation())

    @property
    def variation(self) -> Variation:
        """Choices that differ between episodes; they are not written into files."""
        return self._variation

    def with_variation(self, variation: Variation, image: str) -> AppSpec:
        """Return the application as it runs in one episode, with the image that is deployed first."""
        varied = self.model_copy(update={"image": image})
        varied._variation = variation
        return varied

    @cached_property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Return the declared call graph as (caller, callee), with stores and without the registry."""
        return tuple(
            (service.name, callee) for service in self.services.values() for callee in (*service.calls, *service.stores)
        )

    @property
    def components(self) -> tuple[str, ...]:
        """Return the services that an operator creates; their workloads are changed through the custom resource."""
        return () if self.operator is None else self.operator.components

    def has_deployment(self, name: str) -> bool:
        """Return whether a service has a Deployment that no operator controls."""
        return name not in self.components and not self.services[name].stateful

    def service(self, name: str) -> ServiceSpec:
        """Return a service; raise UsageError with the nearest name if it is unknown."""
        if name not in self.services:
            raise unknown_name(f"service of {self.name}", name, self.services)
        return self.services[name]

    def stores(self, service: str) -> tuple[str, ...]:
        """Return the stores (databases, caches and brokers) that a service uses."""
        return self.service(service).stores

    def consumers(self, store: str) -> tuple[str, ...]:
        self.service(store)
        return tuple(service.name for service in self.services.values() if store in service.stores)

    def mix(self, name: str) -> Mix:
        """Return a mix; raise UsageError with the nearest name if it is unknown."""
        if name not in self.mixes:
            raise unknown_name(f"mix of {self.name}", name, self.mixes)
        return self.mixes[name]


StoreChoice = Annotated[str, Field(pattern=r"^[a-z]+(,[a-z]+)*$")]
"""`original`, or the kinds of stores that run on original servers, comma-separated in alphabetical order."""
REDIS_STORES = "redis"
"""The default, which plans leave out."""
ALL_ORIGINAL = "original"


def parse_store_choice(text: str | None, kinds: Iterable[str]) -> StoreChoice | None:
    """Parse a choice into the form used in plans; None for the default. Raise UsageError for an unknown kind.

    >>> parse_store_choice("postgresql,memcached", ["kafka", "memcached", "postgresql"])
    'memcached,postgresql'
    """
    if text is None or text == REDIS_STORES:
        return None
    if text == ALL_ORIGINAL:
        return ALL_ORIGINAL
    names, all_kinds = {name.strip() for name in text.split(",")}, list(kinds)
    for name in sorted(names - {*all_kinds}):
        raise unknown_name("choice of stores", name, (REDIS_STORES, ALL_ORIGINAL, *all_kinds))
    return ALL_ORIGINAL if names == {*all_kinds} else ",".join(sorted(names))


def chosen_kinds(choice: StoreChoice | None, kinds: Iterable[str]) -> frozenset[str]:
    """Return the kinds of stores that run on original servers."""
    if choice is None or choice == REDIS_STORES:
        return frozenset()
    return frozenset(kinds if choice == ALL_ORIGINAL else choice.split(","))
