"""Templates of the pages, filled."""

from __future__ import annotations

from importlib import resources
from typing import Any

from faultset.evaluators.leaderboards import wording, writing

PACKAGE = "faultset.evaluators.reports"


def filled(name: str, **content: Any) -> str:
    """Fill a template of a page; whatever it is given is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"number": wording.number, "interval": wording.interval, "counts": wording.counts}
    environment.globals |= {"seconds": wording.seconds, "against": writing.against, "mebibytes": wording.mebibytes}
    return environment.get_template(name).render(css=_text("page.css"), **content)


def _text(name: str) -> str:
    return (resources.files(PACKAGE) / name).read_text(encoding="utf-8")
