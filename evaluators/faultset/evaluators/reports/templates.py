"""Jinja templates of pages."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "faultset.evaluators.reports"


def fill_template(name: str, **content: Any) -> str:
    """Fill a template; all content is escaped."""
    return _build_environment().get_template(name).render(css=_read_text("page.css"), **content)


@cache
def _build_environment() -> Environment:
    """Return the environment of the process, which compiles each template once."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_read_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _read_text(name: str) -> str:
    return (resources.files(PACKAGE) / name).read_text(encoding="utf-8")
