"""The steps that only SocialNetwork needs."""

from __future__ import annotations

import random
import string
from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.steps import Step

_SHORT_URL_PREFIX = "http://short-url/"
_ID_CHARACTERS = string.ascii_letters + string.digits


class ShortenUrls(Step):
    """Create a short address for each address of a list."""

    keyword = "shorten_urls"
    urls: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves a list of mappings with `shortened_url` and `expanded_url`."""
        urls_of = getter(self.urls)

        def handle(request: RequestContext) -> None:
            request.values[self.save] = [
                {
                    "shortened_url": _SHORT_URL_PREFIX + "".join(random.choices(_ID_CHARACTERS, k=10)),
                    "expanded_url": url,
                }
                for url in urls_of(request.values) or ()
            ]

        return handle


class ReplaceUrls(Step):
    """Replace the long addresses in a text with the short ones."""

    keyword = "replace_urls"
    text: Any
    urls: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the text."""
        text_of, urls_of = getter(self.text), getter(self.urls)

        def handle(request: RequestContext) -> None:
            text = str(text_of(request.values) or "")
            # the longest first, because an address may be a prefix of another
            for url in sorted(urls_of(request.values) or (), key=lambda url: -len(url["expanded_url"])):
                text = text.replace(url["expanded_url"], url["shortened_url"])
            request.values[self.save] = text

        return handle


class LacksPosts(Step):
    """Check whether a list is shorter than the requested range; the database may have more."""

    keyword = "lacks_posts"
    posts: Any
    start: Any
    stop: Any
    save: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves true or false."""
        posts_of, start_of, stop_of = getter(self.posts), getter(self.start), getter(self.stop)

        def handle(request: RequestContext) -> None:
            values = request.values
            request.values[self.save] = len(posts_of(values)) < int(stop_of(values)) - int(start_of(values))

        return handle


STEPS = (ShortenUrls, ReplaceUrls, LacksPosts)
"""All steps of this application."""
