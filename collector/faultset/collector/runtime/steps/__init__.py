"""The generic steps, which every application can use, and the base classes of steps."""

from __future__ import annotations

from faultset.collector.runtime.steps import basic, flow, stores
from faultset.collector.runtime.steps.step import Step, ValueStep, getter

GENERIC_STEPS: tuple[type[Step], ...] = (
    basic.Require, basic.Call, flow.Parallel, flow.When, flow.ForEach, basic.SetValues, basic.FindText, basic.UniqueId,
    basic.Work, stores.CachedDocuments, stores.FindDocuments, stores.WriteDocuments, stores.PushSorted,
    stores.RangeSorted, basic.Publish, basic.ReadSetting, flow.ReadFlag, flow.ReadFlags, flow.Chance, flow.Wait,
    flow.WriteLine, basic.OpenSpan, basic.Annotate, basic.Count, flow.Fail, basic.Respond,
)  # fmt: skip

__all__ = ["GENERIC_STEPS", "Step", "ValueStep", "getter"]
