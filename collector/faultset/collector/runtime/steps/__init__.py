"""The generic steps, which every application can use."""

from __future__ import annotations

from faultset.collector.runtime.steps.basic import Call, FindText, Require, Respond, SetValues, UniqueId, Work
from faultset.collector.runtime.steps.effects import Annotate, Count, OpenSpan, Publish, ReadSetting
from faultset.collector.runtime.steps.flow import (
    Chance,
    Fail,
    ForEach,
    Parallel,
    ReadFlag,
    ReadFlags,
    Wait,
    When,
    WriteLine,
)
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.steps.stores import (
    CachedDocuments,
    FindDocuments,
    PushSorted,
    RangeSorted,
    WriteDocuments,
)

GENERIC_STEPS: tuple[type[Step], ...] = (
    Require,
    Call,
    Parallel,
    When,
    ForEach,
    SetValues,
    FindText,
    UniqueId,
    Work,
    CachedDocuments,
    FindDocuments,
    WriteDocuments,
    PushSorted,
    RangeSorted,
    Publish,
    ReadSetting,
    ReadFlag,
    ReadFlags,
    Chance,
    Wait,
    WriteLine,
    OpenSpan,
    Annotate,
    Count,
    Fail,
    Respond,
)

__all__ = ["GENERIC_STEPS", "Step"]
