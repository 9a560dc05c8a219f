"""The contract checks for applications and load drivers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.load.driver import LoadDriverClass, LoadTarget, RequestResult
from faultset.collector.load.results import OUTCOMES
from faultset.collector.load.schedule import ScheduledRequest
from faultset.collector.runtime.app_code import load_persona, read_app
from faultset.collector.runtime.background import compile_round
from faultset.collector.runtime.context import FlagValues, ServiceContext
from faultset.collector.runtime.http.caller import Caller, ClientContext
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.tracing import Tracing
from faultset.collector.runtime.request_handlers import compile_operation
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.store_startup import store_clients
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.containers import SPANS_PORT
from faultset.collector.spec.files import format_spec
from faultset.collector.spec.manifests import manifests, service_manifests, workload
from faultset.collector.spec.routes import find_route

_DRAW_COUNT = 200
_TIMEOUT_S = 5.0


def check_app(app: str | AppSpec) -> AppSpec:
    """Check that an application can be deployed, and that its requests and faults fit it; return its spec.

    Parameters
    ----------
    app
        Its name, the path of its folder or YAML file, or its spec.

    Raises
    ------
    UsageError
        The spec is invalid; the message gives the line and the reason.
    AssertionError
        The spec is valid, but its manifests, operations or requests are not; the message says which.
    """
    spec = load_app(app) if isinstance(app, str) else app
    assert read_app(format_spec(spec), f"app {spec.name}, written") == spec, "writing and reading the spec changes it"
    _check_requests(spec)
    _check_faults(spec)
    if spec.deployed is None:
        _check_manifests(spec)
        asyncio.run(_check_operations(spec))
    return spec


def _check_requests(app: AppSpec) -> None:
    entry, rng = app.services[app.entry.service], np.random.default_rng(1)
    for name, mix in app.mixes.items():
        for request in (app.requests[kind] for kind in mix.shares):
            for _ in range(_DRAW_COUNT // len(mix.shares)):
                parameters = request.draw(rng)
                path = request.path.format_map(parameters)
                is_served = not entry.operations or find_route(path, entry.operations, request.method)
                assert is_served, f"mix {name} requests {path}, which {entry.name} does not serve"


def _check_faults(app: AppSpec) -> None:
    for name, fault in faults().items():
        unknown = set(fault.targets(app)) - set(app.services)
        assert not unknown, f"fault {name} has targets that are not services: {', '.join(sorted(unknown))}"


def _check_manifests(app: AppSpec) -> None:
    endpoint = f"http://telemetry:{SPANS_PORT}"
    documents = manifests(app, telemetry_endpoint=endpoint)
    for component in (app.services[name] for name in app.components):
        documents += [*service_manifests(app, component), workload(app, component, endpoint)]
    objects = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(objects) == len(documents), "two manifests have the same kind and name"
    for name, service in app.services.items():
        pod = objects["StatefulSet" if service.stateful else "Deployment", name]["spec"]["template"]
        if service.port:
            service_spec = objects["Service", name]["spec"]
            assert service_spec["selector"].items() <= pod["metadata"]["labels"].items(), (
                f"Service {name} selects no pod"
            )
            ports = {port["containerPort"] for container in pod["spec"]["containers"] for port in container["ports"]}
            assert {port["targetPort"] for port in service_spec["ports"]} <= ports, (
                f"Service {name} targets a closed port"
            )
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in objects, (
                    f"{name} mounts a ConfigMap that is missing"
                )
        assert service.kind != "database" or service.claim or service.store_driver is None, (
            f"database {name} has no claim, so its data is lost with its pod"
        )


async def _check_operations(app: AppSpec) -> None:
    """Compile every operation, as its service does at startup."""
    persona, names, metrics = load_persona(app), Names(None), Metrics()
    common: dict[str, Any] = {
        "log": Log(persona),
        "persona": persona,
        "metrics": metrics,
        "flags": FlagValues(app.flags),
    }
    for service in app.services.values():
        if not (service.operations or service.background):
            continue
        tracing = Tracing()
        ports = {name: other.port for name, other in app.services.items()}
        clients = ClientContext(names=names, local=None, metrics=metrics, texts=persona)
        caller = Caller(clients, ports=ports, tracing=tracing)
        stores = store_clients(app, service, clients, database_port=None, password_of=lambda store: "none")
        context = ServiceContext(caller=caller, stores=stores, indexes={}, tracing=tracing, **common)
        for operation in service.operations:
            compile_operation(operation, service.operations[operation], context)
        for work in service.background:
            compile_round(work, service.background[work], context)
        await caller.close()


def check_load_driver(
    driver: LoadDriverClass, *, url: str, request: ScheduledRequest, options: Mapping[str, Any] | None = None
) -> None:
    """Check that a load driver sends requests and reports every outcome.

    Parameters
    ----------
    url
        `http://ADDRESS:PORT` of a running server that answers the request.
    request
        A request that the server answers.
    options
        The driver's options from a spec.

    Raises
    ------
    AssertionError
        A check failed; the message says which.
    """
    asyncio.run(_check(driver, url, request, options or {}))


async def _check(driver: LoadDriverClass, url: str, request: ScheduledRequest, options: Mapping[str, Any]) -> None:
    client = driver(LoadTarget(url=url, local_address=None, timeout_s=_TIMEOUT_S, options=options))
    try:
        results = await asyncio.gather(*(client.send(request) for _ in range(5)))
        for result in results:
            _check_result(result)
            assert result.outcome == "ok", f"the outcome of an answered request must be ok, got {result.outcome}"
        cancelled = asyncio.create_task(client.send(request))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    finally:
        await client.close()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = driver(LoadTarget(url=closed, local_address=None, timeout_s=_TIMEOUT_S, options=options))
        try:
            result = await client.send(request)
        finally:
            await client.close()
    _check_result(result)
    assert result.outcome in ("refused", "timeout"), (
        f"the outcome at a closed port must be refused or timeout, got {result.outcome}"
    )


def _check_result(result: object) -> None:
    assert isinstance(result, RequestResult), f"send must return a RequestResult, got {result!r}"
    assert result.outcome in OUTCOMES, f"an outcome must be one of {', '.join(OUTCOMES)}, got {result.outcome!r}"
