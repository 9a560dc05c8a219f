"""Templates of the pages, filled."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from faultset.evaluators.leaderboards import number_formats

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "faultset.evaluators.reports"


def filled(name: str, **content: Any) -> str:
    """Fill a template of a page; whatever it is given is escaped."""
    return _environment().get_template(name).render(css=_text("page.css"), **content)


@cache
def _environment() -> Environment:
    """Return the one environment of a process, which compiles each template once."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {
        "number": number_formats.number,
        "interval": number_formats.interval,
        "counts": number_formats.counts,
        "seconds": number_formats.seconds,
        "value": number_formats.value,
        "mebibytes": number_formats.mebibytes,
    }
    return environment


def _text(name: str) -> str:
    return (resources.files(PACKAGE) / name).read_text(encoding="utf-8")
