"""Faults that turn on feature flags in the ConfigMap from which the application reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from faultset.collector.faults.deployments import is_restarted, trigger_restart
from faultset.collector.faults.registry import FaultType, either, fault
from faultset.collector.platforms.base import Platform
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features import FlagSettings, set_variant, values_in
from faultset.core.errors import PlatformError


class _FlagFault(NamedTuple):
    """One fault; its injection draws one of the flag's `variants`."""

    name: str
    flag: str
    fault_type: FaultType
    summary: str
    variants: tuple[str, ...] = ("on",)
    intensity: str = ""
    gray: bool = True
    paper_number: int | None = None


_IMAGE_DELAYS_S = (5, 10)
_CHARGE_PERCENTAGES = (100, 90, 75, 50, 25)

_FAULTS = (
    _FlagFault("ad-failure", "adFailure", "Code Defect", "Make one in ten requests for advertisements fail."),
    _FlagFault(
        "ad-high-cpu", "adHighCpu", "Code Defect", "Keep four threads of the ad service busy while it gets requests."
    ),
    _FlagFault(
        "ad-manual-gc", "adManualGc", "Code Defect", "Collect garbage ten times on every request for advertisements."
    ),
    _FlagFault(
        "cart-failure",
        "cartFailure",
        "Misconfiguration",
        "Send requests to empty a cart to a host that does not exist; orders succeed late.",
    ),
    _FlagFault(
        "flood-homepage",
        "loadGeneratorFloodHomepage",
        "Operation Error",
        "Request the home page a hundred times in a row, again and again.",
        gray=False,
    ),
    _FlagFault(
        "image-slow-load",
        "imageSlowLoad",
        "Misconfiguration",
        "Delay images by several seconds.",
        variants=tuple(f"{number}sec" for number in _IMAGE_DELAYS_S),
        intensity=f"{either(_IMAGE_DELAYS_S)} s",
    ),
    _FlagFault(
        "kafka-queue-problems",
        "kafkaQueueProblems",
        "Operation Error",
        "Publish a hundred more messages per order, and make fraud-detection sleep at each.",
        gray=False,
    ),
    _FlagFault(
        "payment-failure",
        "paymentFailure",
        "Authentication Issue",
        "Make a share of the charges fail with an invalid token.",
        variants=tuple(f"{number}%" for number in _CHARGE_PERCENTAGES),
        intensity=f"{either(reversed(_CHARGE_PERCENTAGES))} % of the charges",
    ),
    _FlagFault(
        "payment-unreachable",
        "paymentUnreachable",
        "Misconfiguration",
        "Make checkout send charges to an address that does not exist.",
        paper_number=12,
    ),
    _FlagFault(
        "product-catalog-failure",
        "productCatalogFailure",
        "Code Defect",
        "Make requests for one of the ten products fail.",
    ),
    _FlagFault(
        "recommendation-cache-failure",
        "recommendationCacheFailure",
        "Code Defect",
        "Make half of the requests for recommendations grow a cache by a quarter.",
        gray=False,
    ),
)


def service_of_flag(name: str) -> Callable[[AppSpec], tuple[str, ...]]:
    """Return a function that selects the service that evaluates a flag; none if the application lacks the flag."""

    def targets(app: AppSpec) -> tuple[str, ...]:
        flag = app.flags.flags.get(name) if app.flags else None
        return (flag.service,) if flag else ()

    return targets


def turn_on(platform: Platform, name: str, variant: str) -> dict[str, Any]:
    """Change the default variant of a flag and restart the provider, which reads the file when it starts.

    The restart comes first, so that its undo comes last and the provider starts with the restored file.
    """
    settings = _get_settings(platform)
    if settings.provider is not None:
        trigger_restart(platform, settings.provider)
    data = platform.get("ConfigMap", settings.config_map).get("data") or {}
    try:
        text = set_variant(data.get(settings.file, ""), name, variant)
    except ValueError as error:
        raise PlatformError(
            f"{settings.file} of ConfigMap {settings.config_map} must have feature flags, but cannot be read: {error}"
        ) from None
    platform.patch("ConfigMap", settings.config_map, {"data": {settings.file: text}})
    return {"flag": name, "variant": variant, "config_map": settings.config_map}


def is_on(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the ConfigMap has the variant and only restarted pods of the provider run."""
    settings, name = _get_settings(platform), parameters["flag"]
    text = (platform.get("ConfigMap", settings.config_map).get("data") or {}).get(settings.file, "")
    try:
        default = json.loads(text)["flags"][name]["defaultVariant"]
        value = values_in(text).get(name)
    except (ValueError, KeyError, TypeError):
        return None
    if default != parameters["variant"] or not (settings.provider is None or is_restarted(platform, settings.provider)):
        return None
    return f"ConfigMap {settings.config_map} sets {name} to {default} ({value})"


def _get_settings(platform: Platform) -> FlagSettings:
    assert platform.app.flags is not None, "faults of flags need an application with flags"
    return platform.app.flags


def _register(row: _FlagFault) -> None:
    def inject(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
        is_drawn = len(row.variants) > 1
        return turn_on(platform, row.flag, str(rng.choice(row.variants)) if is_drawn else row.variants[0])

    fault(
        row.name,
        summary=row.summary,
        system_level="Application",
        fault_type=row.fault_type,
        paper_number=row.paper_number,
        targets=service_of_flag(row.flag),
        check=is_on,
        intensity=row.intensity,
        gray=row.gray,
    )(inject)


for _row in _FAULTS:
    _register(_row)
