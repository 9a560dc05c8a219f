"""An application as data: services, their calls and stores, behaviour on errors, endpoints and workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from faultset.collector.spec.collections import Collection
from faultset.collector.spec.steps import Call, Frozen, Steps, stores_of, written
from faultset.collector.spec.workload import Mix, RequestSpec
from faultset.core.errors import UsageError

Kind = Literal["frontend", "logic", "cache", "database", "infrastructure"]


class Entry(NamedTuple):
    """Where clients send their requests."""

    service: str
    port: int


class Operation(Frozen):
    """What a service does for one RPC (`/geo.Geo/Nearby`) or HTTP endpoint (`/hotels`)."""

    log: str
    caller: str
    work_ms: float = 0.0
    steps: Annotated[Steps, PlainSerializer(written)]


class Seed(Frozen):
    """A collection that the service fills at its start when the store has none."""

    store: str
    collection: str


class Index(Frozen):
    """A collection kept in memory, read once at the service's start; empty when that read fails."""

    store: str
    collection: str
    error: str


class Deployed(Frozen):
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


class ServiceSpec(Frozen):
    """One service: what runs in its container, and what that program does.

    Of a service that somebody else has deployed only name, kind and relations are told. Its name is the value of the
    application's label; `objects` gives the names of its Deployment and Service where they differ.
    """

    name: str
    kind: Kind
    container: str = ""
    program: tuple[str, ...] = ()
    port: int = 0
    objects: dict[str, str] = Field(default_factory=dict)
    callees: tuple[str, ...] = ()
    image: str | None = None
    caller: str = "cmd/main.go"
    registry_name: str | None = None
    stores: tuple[str, ...] = ()
    claim: str | None = None
    auth: Literal["password", "open"] = "open"
    database: str | None = None
    collections: dict[str, Collection] = Field(default_factory=dict)
    seeds: tuple[Seed, ...] = ()
    indexes: dict[str, Index] = Field(default_factory=dict)
    operations: dict[str, Operation] = Field(default_factory=dict)
    cpu_limit: float = 1.0
    memory_limit_mib: int = 256

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """Services that it calls: those that are told, then those of its operations, in order of first appearance."""
        return tuple(dict.fromkeys((*self.callees, *(call.service for call in self.rpc_calls()))))

    @property
    def reads_store_at_start(self) -> bool:
        """Whether it answers from memory, filled only at its start, so that later faults of its store do not show."""
        return bool(self.indexes)

    @property
    def exports_metrics(self) -> bool:
        """Whether its process has a metrics endpoint of its own."""
        return self.kind in ("frontend", "logic")

    def rpc_calls(self) -> Iterator[Call]:
        """Yield the calls of all its operations."""
        for operation in self.operations.values():
            for step in operation.steps:
                if isinstance(step.does, Call):
                    yield step.does


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: {"name": name, **service} if isinstance(service, dict) else service for name, service in value.items()
        }
    return value


class AppSpec(Frozen):
    """A whole application.

    Everything that depends on the application is here; the runtime, the manifests and the load know none of it.
    """

    name: str
    title: str
    version: str
    image: str = "faultset/app:1.0.0"
    deployed: Deployed | None = None
    label_key: str = "app"
    log_level: Literal["trace", "info"] = "trace"
    trace_sampling: float = Field(default=1.0, ge=0.0, le=1.0)
    registry: str | None = None
    entry: Entry
    services: Annotated[dict[str, ServiceSpec], BeforeValidator(_named)]
    requests: dict[str, RequestSpec]
    mixes: dict[str, Mix] = Field(min_length=1)
    default_mix: str

    @cached_property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Declared call graph: (caller, callee), stores included; the registry carries no calls."""
        return tuple(
            (service.name, callee) for service in self.services.values() for callee in (*service.calls, *service.stores)
        )

    def service(self, name: str) -> ServiceSpec:
        """Return one service; raise UsageError with the nearest name for an unknown one."""
        if name not in self.services:
            raise UsageError(unknown("service", name, self.services, f"app {self.name}"))
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
            raise UsageError(unknown("mix", name, self.mixes, f"app {self.name}"))
        return self.mixes[name]

    @model_validator(mode="after")
    def _is_consistent(self) -> AppSpec:
        known = set(self.services)
        _need(self.entry.service, known, "entry")
        _need(self.default_mix, set(self.mixes), "default_mix")
        if self.registry is not None:
            _need(self.registry, known, "registry")
        for mix_name, mix in self.mixes.items():
            for request in mix.shares:
                _need(request, set(self.requests), f"mix {mix_name}")
        for service in self.services.values():
            self._check_service(service, known)
        return self

    def _check_service(self, service: ServiceSpec, known: set[str]) -> None:
        where = f"service {service.name}"
        for store in service.stores:
            _need(store, known, where)
        for rule in (*service.seeds, *service.indexes.values()):
            _need(rule.store, set(service.stores), where)
            _need(rule.collection, set(self.services[rule.store].collections), where)
        for name, operation in service.operations.items():
            for store in stores_of(operation.steps):
                _need(store, set(service.stores), f"{where}, operation {name}")
            for step in operation.steps:
                index = getattr(step.does, "index", None)
                if index is not None:
                    _need(index, set(service.indexes), f"{where}, operation {name}")
        for callee in service.callees:
            _need(callee, known, where)
        if self.deployed is None and not (service.container and service.program and service.port):
            raise ValueError(f"{where} needs container, program and port, since we deploy it")
        for call in service.rpc_calls():
            _need(call.service, known, where)
            _need(call.operation, set(self.services[call.service].operations), f"{where}, call")


def _need(name: str, known: set[str], where: str) -> None:
    if name not in known:
        raise ValueError(f"{where} names {name!r}, which is not among {', '.join(sorted(known)) or 'none'}")


def unknown(what: str, name: str, known: Mapping[str, Any] | tuple[str, ...], where: str) -> str:
    """Sentence for a name that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
    return f'{where} has no {what} "{name}"; {hint}'
