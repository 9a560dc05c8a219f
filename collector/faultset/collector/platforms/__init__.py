"""Where applications run: the protocol, its journal, and the platforms by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faultset.core.suggestions import unknown_name

if TYPE_CHECKING:
    from faultset.collector.platforms.api.host import Site

PLATFORMS = ("local", "kubernetes")


def open_site(platform: str, settings: Mapping[str, Any] | None = None) -> Site:
    """Return the place where episodes of a platform run.

    Parameters
    ----------
    settings
        What the platform's constructor takes beyond the plan; plain values, which survive JSON.

    Raises
    ------
    UsageError
        There is no platform of that name.
    """
    if platform == "local":
        from faultset.collector.platforms.local.host import LocalSite

        return LocalSite(settings or {})
    if platform == "kubernetes":
        from faultset.collector.platforms.kubernetes.host import KubernetesSite

        return KubernetesSite(settings or {})
    raise unknown_name("platform", platform, PLATFORMS)
