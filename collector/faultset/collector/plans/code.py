"""Which code a campaign runs: its faults, applications, load drivers, platform and sources, by content."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from faultset.collector.apps import is_path, load_app
from faultset.collector.apps.catalogue import GROUP as APPS
from faultset.collector.faults.registry import GROUP as FAULTS
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.load.driver import GROUP as LOAD_DRIVERS
from faultset.collector.platforms.hosts import GROUP as PLATFORMS
from faultset.collector.sources.registry import GROUP as SOURCES
from faultset.core.code_identity import CodeIdentity, code_identity, path_identity, plugin_identity
from faultset.core.plugins import plugins

_FAULTS_PACKAGE = "faultset.collector.faults"


def campaign_code(
    faults: list[FaultSpec], apps: tuple[str, ...], platform: str, sources: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return "fault NAME", "app NAME" and so on -> identity of its code.

    Platforms, sources and load drivers that come with faultset are not named: its version says which they are.

    Parameters
    ----------
    apps
        Names of applications, or paths of their folders or files.
    sources
        Names of the sources that the campaign adds.
    """
    announced = plugins(FAULTS)
    found = {
        f"fault {spec.name}": code_identity(spec.inject, announced.get(spec.name), within=_FAULTS_PACKAGE)
        for spec in faults
    }
    drivers, added = plugins(LOAD_DRIVERS), plugins(SOURCES)
    used = [plugins(PLATFORMS).get(platform), *(added.get(name) for name in sources)]
    for name in apps:
        app = load_app(name)
        found[f"app {app.name}"] = app_identity(name)
        used.append(drivers.get(app.load.driver))
    kinds = {PLATFORMS: "platform", SOURCES: "source", LOAD_DRIVERS: "load driver"}
    for plugin in used:
        if plugin is not None and not plugin.built_in:
            found[f"{kinds[plugin.group]} {plugin.name}"] = plugin_identity(plugin)
    return {what: str(identity) for what, identity in sorted(found.items())}


def app_identity(name: str) -> CodeIdentity:
    """Identify an application: the content of its folder or file, of an installed one with its distribution."""
    if is_path(name):
        return path_identity(Path(name))
    plugin = plugins(APPS)[name]
    loaded = plugin.load()
    if isinstance(loaded, ModuleType) and not plugin.built_in:
        return plugin_identity(plugin)
    place = Path(str(loaded.__file__)).parent if isinstance(loaded, ModuleType) else Path(str(loaded))
    return CodeIdentity(distribution=plugin.distribution, digest=path_identity(place).digest)
