"""The steps that only SocialNetwork needs."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from typing import Any

from faultset.collector.runtime.context import ServiceContext
from faultset.collector.runtime.steps.step import Getter, ValueStep, getter

_SHORT_URL_PREFIX = "http://short-url/"
_ID_CHARACTERS = string.ascii_letters + string.digits


Values = Mapping[str, Any]


class ShortenUrls(ValueStep):
    """Create a short address for each address of a list."""

    keyword = "shorten_urls"
    urls: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        urls_of = getter(self.urls)

        def shorten(url: str) -> dict[str, str]:
            short_url = _SHORT_URL_PREFIX + "".join(random.choices(_ID_CHARACTERS, k=10))
            return {"shortened_url": short_url, "expanded_url": url}

        return lambda values: [shorten(url) for url in urls_of(values) or ()]


class ReplaceUrls(ValueStep):
    """Replace the long addresses in a string with the short ones."""

    keyword = "replace_urls"
    text: Any
    urls: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        text_of, urls_of = getter(self.text), getter(self.urls)

        def replace_all(values: Values) -> str:
            text = str(text_of(values) or "")
            # the longest first, because an address may be a prefix of another
            for url in sorted(urls_of(values) or (), key=lambda url: -len(url["expanded_url"])):
                text = text.replace(url["expanded_url"], url["shortened_url"])
            return text

        return replace_all


class LacksPosts(ValueStep):
    """Check whether a list is shorter than the requested range; the database may have more."""

    keyword = "lacks_posts"
    posts: Any
    start: Any
    stop: Any
    save: str

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        posts_of, start_of, stop_of = getter(self.posts), getter(self.start), getter(self.stop)
        return lambda values: len(posts_of(values)) < int(stop_of(values)) - int(start_of(values))


STEPS = (ShortenUrls, ReplaceUrls, LacksPosts)
