"""Load a spec together with the application's code: its steps and its persona.

The code is an importable package or the path of a folder, with `operations.py` (a tuple `STEPS` of
`Step` classes) or `persona.py` (an instance `PERSONA` of a `Persona`), or both.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.steps import GENERIC_STEPS
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores import STORE_DRIVERS
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.collector.spec.files import parse, read_mapping, wrong_spec
from faultset.collector.spec.steps import FieldPath
from faultset.core.errors import UsageError, suggest


def read_app(
    text: str, source: str, *, code: str | None = None, workload_of: Callable[[str], dict[str, Any]] | None = None
) -> AppSpec:
    """Read a spec that uses generic steps and steps from the application's code; raise UsageError if it is invalid.

    `code` is the package or folder of the code, for a spec that does not name it; for the others see `parse`.
    """
    spec_code = read_mapping(text, source).get("code", code)
    app_steps = load_steps(spec_code) if isinstance(spec_code, str) else ()
    steps = {step.keyword: step for step in (*GENERIC_STEPS, *app_steps)}
    app = parse(text, source, steps=steps, code=code, workload_of=workload_of)
    for service in app.services.values():
        for field, reason in _find_problems(app, service):
            raise wrong_spec(text, source, ("services", service.name, *field), reason)
    return app


def _find_problems(app: AppSpec, service: ServiceSpec) -> Iterator[tuple[FieldPath, str]]:
    """Yield the fields of a service that contradict a store driver or the application's code, with the reason."""
    driver = STORE_DRIVERS.get(service.store_driver or "")
    if service.store_driver is not None and driver is None:
        advice = suggest(service.store_driver, STORE_DRIVERS)
        yield ("program",), f"the store driver {service.store_driver!r} does not exist; {advice}"
    if driver is not None and driver.port != service.port:
        yield ("port",), f"a {driver.name} must listen on port {driver.port}, got {service.port}"
    for store in service.stores:
        if app.deployed is None and app.services[store].store_driver is None:
            yield ("stores",), f"{store} is not a store: its program must be faultset-store"
    for field, store in _list_brokers(service):
        driver = STORE_DRIVERS.get(app.services[store].store_driver or "")
        if driver is not None and not driver.carries_messages:
            yield field, f"{store} must be a message broker, but its program is {driver.name}"
    if service.runs is not None and service.runs not in load_persona(app).programs:
        yield ("runs",), f"the application's code does not define the program {service.runs!r}"


def _list_brokers(service: ServiceSpec) -> Iterator[tuple[FieldPath, str]]:
    for name, consumer in service.consumers.items():
        yield ("consumers", name, "store"), consumer.store
    for path, step in service.steps():
        for store in step.brokers_used():
            yield path, store


def load_steps(code: str) -> tuple[type[Step], ...]:
    """Return the steps that an application's code defines; raise UsageError if the code is invalid."""
    module = _import_module(code, "operations")
    if module is None:
        return ()
    steps = getattr(module, "STEPS", None)
    if not isinstance(steps, tuple) or not all(isinstance(step, type) and issubclass(step, Step) for step in steps):
        raise UsageError(
            f"{module.__file__} must define STEPS, a tuple of classes that derive from Step, got {steps!r}"
        )
    return steps


def load_persona(app: AppSpec) -> Persona:
    """Return the persona that an application's code defines, or the neutral one."""
    module = _import_module(app.code, "persona") if app.code is not None else None
    if module is None:
        return Persona()
    persona = getattr(module, "PERSONA", None)
    if not isinstance(persona, Persona):
        raise UsageError(f"{module.__file__} must define PERSONA, an instance of Persona, got {persona!r}")
    return persona


def is_folder(code: str) -> bool:
    """Return whether an application's code is the path of a folder, not the name of a package."""
    return "/" in code


@functools.cache
def _import_module(code: str, name: str) -> ModuleType | None:
    try:
        return _import_from_folder(Path(code), name) if is_folder(code) else _import_from_package(code, name)
    except Exception as error:  # importing the module may raise anything
        reason = str(error).strip().partition("\n")[0] or "no message"
        raise UsageError(
            f"{name}.py of the application's code {code} cannot be imported: {type(error).__name__}: {reason}; install "
            "the code in the service's image, or as a folder on this machine"
        ) from error


def _import_from_package(package: str, name: str) -> ModuleType | None:
    importlib.import_module(package)
    full = f"{package}.{name}"
    return importlib.import_module(full) if importlib.util.find_spec(full) is not None else None


def _import_from_folder(folder: Path, name: str) -> ModuleType | None:
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist")
    path = folder / f"{name}.py"
    if not path.exists():
        return None
    # a separate package per folder lets its modules import each other without clashes between folders
    package = f"faultset_app_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        parent = ModuleType(package)
        parent.__path__ = [str(folder)]
        sys.modules[package] = parent
    return importlib.import_module(f"{package}.{name}")
