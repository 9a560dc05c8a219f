"""The steps of SocialNetwork's own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from faultset.collector.apps.social.operations import LacksPosts, ReplaceUrls, ShortenUrls
from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.steps import Step


def values_after(step: Step, **values: Any) -> dict[str, Any]:
    request = RequestContext(values=values, trace=cast(Any, None))
    step.compile(cast(Any, None), "here")(request)
    return request.values


def test_addresses_are_shortened_and_replaced_the_longest_first() -> None:
    pairs = values_after(ShortenUrls(urls="$u", save="s"), u=["http://a.b/1", "http://a.b/1/2"])["s"]
    assert [pair["expanded_url"] for pair in pairs] == ["http://a.b/1", "http://a.b/1/2"]
    short = [pair["shortened_url"] for pair in pairs]
    assert len(set(short)) == 2
    text = values_after(ReplaceUrls(text="$t", urls="$u", save="r"), t="x http://a.b/1/2 http://a.b/1 y", u=pairs)["r"]
    assert text == f"x {short[1]} {short[0]} y"


@pytest.mark.parametrize(("posts", "lacks"), [([], True), ([1, 2], True), ([1, 2, 3], False)])
def test_a_timeline_shorter_than_the_range_lacks_posts(posts: list[int], lacks: bool) -> None:
    step = LacksPosts(posts="$p", start="$a", stop="$b", save="l")
    assert values_after(step, p=posts, a="2", b="5")["l"] is lacks
