"""Turning a feature flag on, as an operator does: the ConfigMap is changed and the flags' provider restarted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.faults.deployments import is_restarted, order_restart
from faultset.collector.faults.registry import Check
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features.behaviour import FlagSettings, set_variant, values_in
from faultset.core.errors import PlatformError


def service_of_flag(name: str) -> Callable[[AppSpec], tuple[str, ...]]:
    """Return the selection of the service that an application holds responsible for a flag; none without the flag."""

    def targets(app: AppSpec) -> tuple[str, ...]:
        flag = app.flags.flags.get(name) if app.flags else None
        return (flag.service,) if flag else ()

    return targets


def turn_on(platform: Platform, name: str, variant: str) -> dict[str, Any]:
    """Make another variant of a flag the default one, and restart the provider so that it reads the file anew.

    The restart is ordered first, so that its undo comes last: the provider then starts with the file from before.
    """
    settings = _settings(platform)
    if settings.provider is not None:
        order_restart(platform, settings.provider)
    data = platform.get("ConfigMap", settings.config_map).get("data") or {}
    try:
        text = set_variant(data.get(settings.file, ""), name, variant)
    except ValueError as error:
        raise PlatformError(
            f"key {settings.file} of ConfigMap {settings.config_map} has no flags that can be set: {error}"
        ) from None
    platform.patch("ConfigMap", settings.config_map, {"data": {settings.file: text}})
    return {"flag": name, "variant": variant, "config_map": settings.config_map}


def is_on(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the ConfigMap has the variant, and the provider runs in its new form alone."""
    settings, name = _settings(platform), parameters["flag"]
    text = (platform.get("ConfigMap", settings.config_map).get("data") or {}).get(settings.file, "")
    try:
        default = json.loads(text)["flags"][name]["defaultVariant"]
        value = values_in(text).get(name)
    except (ValueError, KeyError, TypeError):
        return None
    if default != parameters["variant"] or not (settings.provider is None or is_restarted(platform, settings.provider)):
        return None
    return f"ConfigMap {settings.config_map} sets {name} to {default} ({value})"


def _settings(platform: Platform) -> FlagSettings:
    assert platform.app.flags is not None, "a flag's fault has targets in applications with flags only"
    return platform.app.flags


FLAG_CHECK: Check = is_on
"""The check of every flag's fault."""
