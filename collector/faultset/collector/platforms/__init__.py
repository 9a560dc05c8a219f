"""Where applications run: the protocol, its journal, and the platforms by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.datasets.errors import PlatformError
from faultset.datasets.suggestions import unknown_name

if TYPE_CHECKING:
    from faultset.collector.apps.spec import AppSpec
    from faultset.collector.plans.plan import Plan
    from faultset.collector.platforms.journal import Journal
    from faultset.collector.platforms.protocol import Platform

PLATFORMS = ("local",)


def check_platform(name: str) -> None:
    """Refuse a platform that cannot work here, before anything is begun.

    Raises
    ------
    PlatformError
        Something it needs is missing; says what, and how to mend it.
    """
    from faultset.collector.platforms.local.checks import checks

    for row in checks():
        if not row["ok"]:
            raise PlatformError(f"{row['check']} is needed, but found {row['found']}; {row['remedy']}")


def make_platform(plan: Plan, app: AppSpec, folder: Path, journal: Journal, settings: Mapping[str, Any]) -> Platform:
    """Return the platform that the plan names, ready to deploy.

    Raises
    ------
    UsageError
        There is no platform of that name.
    PlatformError
        It cannot be used on this machine.
    """
    if plan.platform == "local":
        from faultset.collector.platforms.local.platform import LocalPlatform

        return LocalPlatform(app, folder, journal=journal, seed=plan.seed, step_s=plan.step_s, **settings)
    raise unknown_name("platform", plan.platform, PLATFORMS)
