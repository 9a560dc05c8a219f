"""Steps that make values: variables, texts, identifiers, and parts of a text."""

from __future__ import annotations

import itertools
import os
import re
import string
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.steps.step import Step


def check_template(text: str) -> str:
    """Return a text with names in braces; raise ValueError when it is none."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"a text with names in braces is wanted, and {text!r} is none: {error}") from None
    for _, name, form, conversion in parts:
        if name is not None and (not re.fullmatch(r"[\w.]+", name) or form or conversion):
            raise ValueError(f"names in braces are paths such as {{user.name}}; found {{{name}}} in {text!r}")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression is wanted, and {text!r} is none: {error}") from None
    return text


class SetValues(Step):
    """Keep values, or texts made of them, under names for later steps."""

    keyword = "set"
    values: dict[str, Any] = Field(default_factory=dict)
    """The values by name."""
    texts: dict[str, Annotated[str, AfterValidator(check_template)]] = Field(default_factory=dict)
    """Texts by name; in them `{a.b}` stands for the value `$a.b`, nothing for an absent one."""

    def names_saved(self) -> tuple[str, ...]:
        """Return the names of values and texts."""
        return (*self.values, *self.texts)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that keeps them."""
        values = {name: getter(value) for name, value in self.values.items()}
        texts = {name: text_of(text) for name, text in self.texts.items()}

        def handle(request: RequestContext) -> None:
            request.values.update({name: value(request.values) for name, value in values.items()})
            request.values.update({name: text(request.values) for name, text in texts.items()})

        return handle


class UniqueId(Step):
    """Make an identifier that no other request gets: a whole number of at most 63 bits, the later the larger, as text.

    It consists of milliseconds, ten bits of the process and a counter of eight bits.
    """

    keyword = "unique_id"
    save: str
    """Name under which the identifier is kept for later steps."""
    save_time: str | None = None
    """Name under which the milliseconds since 1970 are kept."""

    def names_saved(self) -> tuple[str, ...]:
        """Return the names of identifier and time."""
        return (self.save,) if self.save_time is None else (self.save, self.save_time)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that makes one."""
        process, counter = int.from_bytes(os.urandom(2), "big") & 0x3FF, itertools.count()

        def handle(request: RequestContext) -> None:
            milliseconds = int(time.time() * 1000)
            if self.save_time is not None:
                request.values[self.save_time] = milliseconds
            request.values[self.save] = str(milliseconds << 18 | process << 8 | next(counter) & 0xFF)

        return handle


class FindText(Step):
    """Find all parts of a text that match a pattern, in their order, each once."""

    keyword = "find_text"
    text: Any
    """The text."""
    pattern: Annotated[str, AfterValidator(_pattern)]
    """A regular expression; with a group in it, the group is what is kept."""
    save: str
    """Name under which the list of parts is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that finds."""
        value_of, pattern = getter(self.text), re.compile(self.pattern)
        group = 1 if pattern.groups else 0

        def handle(request: RequestContext) -> None:
            text = str(value_of(request.values) or "")
            request.values[self.save] = list(dict.fromkeys(match[group] for match in pattern.finditer(text)))

        return handle


def text_of(text: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that fills in a text with names in braces."""
    parts = [(literal, name) for literal, name, _, _ in string.Formatter().parse(text)]
    compiled = [(literal, getter(f"${name}") if name else None) for literal, name in parts]

    def fill(known: Mapping[str, Any]) -> str:
        values = ("" if value is None else value(known) for _, value in compiled)
        texts = ("" if value is None else str(value) for value in values)
        return "".join(literal + text for (literal, _), text in zip(compiled, texts, strict=True))

    return fill
