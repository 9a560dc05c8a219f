"""Steps that every application can use: each is its fields in a spec, and the function that it compiles to."""

from __future__ import annotations

from faultset.collector.runtime.steps.basic import Call, Require, Respond, Work
from faultset.collector.runtime.steps.caching import CachedDocuments
from faultset.collector.runtime.steps.documents import FindDocuments, WriteDocuments
from faultset.collector.runtime.steps.flags import Chance, ReadFlag, ReadFlags
from faultset.collector.runtime.steps.flow import ForEach, Parallel, When
from faultset.collector.runtime.steps.messaging import Publish
from faultset.collector.runtime.steps.outcomes import Fail, Wait, WriteLine
from faultset.collector.runtime.steps.settings import ReadSetting
from faultset.collector.runtime.steps.sorted_sets import PushSorted, RangeSorted
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.steps.telemetry import Annotate, Count, OpenSpan
from faultset.collector.runtime.steps.values import FindText, SetValues, UniqueId

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
