"""Running fault-injection episodes and recording them as datasets."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.collector.campaigns.collection import CampaignResult, collect
    from faultset.collector.campaigns.scheduler import CampaignProgress, EpisodeResult
    from faultset.collector.plans.campaign_plans import plan_campaign
    from faultset.collector.plans.plan import Plan
    from faultset.collector.plans.requests import CampaignRequest, make_request

__all__ = [
    "CampaignProgress",
    "CampaignRequest",
    "CampaignResult",
    "EpisodeResult",
    "Plan",
    "collect",
    "make_request",
    "plan_campaign",
]

_HOMES = {
    "CampaignProgress": "faultset.collector.campaigns.scheduler",
    "CampaignRequest": "faultset.collector.plans.requests",
    "CampaignResult": "faultset.collector.campaigns.collection",
    "EpisodeResult": "faultset.collector.campaigns.scheduler",
    "Plan": "faultset.collector.plans.plan",
    "collect": "faultset.collector.campaigns.collection",
    "make_request": "faultset.collector.plans.requests",
    "plan_campaign": "faultset.collector.plans.campaign_plans",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use, so that a command's --help does not pay for pyarrow and pandas.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
