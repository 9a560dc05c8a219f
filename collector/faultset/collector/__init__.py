"""Run fault-injection episodes and record them as datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.collector.campaigns.collection import CampaignResult, collect
    from faultset.collector.campaigns.episode_processes import EpisodeResult
    from faultset.collector.campaigns.executors import CampaignProgress
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

__getattr__, __dir__ = lazy_names(__name__)
