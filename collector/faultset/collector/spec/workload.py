"""The workload of clients: requests with random parameters, and mixes of them."""

from __future__ import annotations

import bisect
import datetime
import itertools
import math
import string
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from faultset.collector.spec.steps import FrozenModel

if TYPE_CHECKING:
    import numpy as np


class IntegerDraw(FrozenModel):
    """A random integer n from `low` to `high`, inclusive, optionally transformed to base + scale * n."""

    kind: Literal["integer"]
    low: int
    high: int
    base: float | None = None
    scale: float = 1.0

    @model_validator(mode="after")
    def _is_ordered(self) -> IntegerDraw:
        if self.low > self.high:
            raise ValueError(f"low must not be above high, got {self.low} and {self.high}")
        return self

    def draw(self, rng: np.random.Generator, drawn: dict[str, str]) -> str:
        number = int(rng.integers(self.low, self.high + 1))
        return str(number) if self.base is None else f"{self.base + self.scale * number:.4f}"


class DateDraw(FrozenModel):
    """A random day from `low` to `high`, or 1 to `most` days after an earlier field but not after `high`."""

    kind: Literal["date"]
    low: datetime.date | None = None
    high: datetime.date | None = None
    after: str | None = None
    most: int | None = None

    @model_validator(mode="after")
    def _has_bounds(self) -> DateDraw:
        if self.after is None and (self.low is None or self.high is None):
            raise ValueError("a date must have low and high, or after")
        if self.after is not None and self.high is None and self.most is None:
            raise ValueError("a date with after must have high or most")
        return self

    def draw(self, rng: np.random.Generator, drawn: dict[str, str]) -> str:
        if self.after is None:
            assert self.low is not None
            assert self.high is not None
            days = int(rng.integers(0, (self.high - self.low).days + 1))
            return str(self.low + datetime.timedelta(days=days))
        start = datetime.date.fromisoformat(drawn[self.after])
        most = self.most if self.high is None else min((self.high - start).days, self.most or 10**6)
        assert most is not None
        return str(start + datetime.timedelta(days=int(rng.integers(1, max(most, 1) + 1))))


class ChoiceDraw(FrozenModel):
    """A weighted random choice of a value."""

    kind: Literal["choice"]
    values: dict[str, float]

    @model_validator(mode="after")
    def _has_weight(self) -> ChoiceDraw:
        if not all(0 <= weight < math.inf for weight in self.values.values()) or not any(self.values.values()):
            raise ValueError("the weights of a choice must not be negative, and at least one must be above zero")
        return self

    def draw(self, rng: np.random.Generator, drawn: dict[str, str]) -> str:
        names, bounds = list(self.values), list(itertools.accumulate(self.values.values()))
        return names[bisect.bisect_right(bounds, rng.random() * bounds[-1])]


class TextDraw(FrozenModel):
    """A string in which `{name}` is replaced by an earlier field."""

    kind: Literal["text"]
    text: str

    def draw(self, rng: np.random.Generator, drawn: dict[str, str]) -> str:
        return self.text.format_map(drawn)


def _list_names_in(template: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(template) if name]


Draw = Annotated[IntegerDraw | DateDraw | ChoiceDraw | TextDraw, Field(discriminator="kind")]


class RequestSpec(FrozenModel):
    """One type of request: its path, and random parameters in the order in which they are drawn.

    Parameters whose names begin with `_` are not sent; later parameters can refer to them. Parameters in braces in the
    path are inserted there; the others go into the query, a form or a JSON object.
    """

    method: str
    path: str
    parameters: dict[str, Draw] = Field(default_factory=dict)
    body: Literal["query", "form", "json"] = "query"

    @model_validator(mode="after")
    def _refers_to_parameters(self) -> RequestSpec:
        drawn: list[str] = []
        for name, rule in self.parameters.items():
            for used in _list_names_in(rule.text) if isinstance(rule, TextDraw) else ():
                if used not in drawn:
                    raise ValueError(f"the text of {name} uses {used!r}, which is not an earlier parameter")
            if isinstance(rule, DateDraw) and rule.after is not None and rule.after not in drawn:
                raise ValueError(f"{name} is after {rule.after!r}, which is not an earlier parameter")
            drawn.append(name)
        for name in _list_names_in(self.path):
            if name not in drawn or name.startswith("_"):
                raise ValueError(f"the path uses {name!r}, which is not a sent parameter")
        return self

    @property
    def endpoint(self) -> str:
        """Return the name in the table of requests."""
        return f"{self.method} {self.path}"

    def draw(self, rng: np.random.Generator) -> dict[str, str]:
        """Draw the sent parameters of one request."""
        drawn: dict[str, str] = {}
        for name, rule in self.parameters.items():
            drawn[name] = rule.draw(rng, drawn)
        return {name: value for name, value in drawn.items() if not name.startswith("_")}


class Mix(FrozenModel):
    """Shares of request types, which add up to 1."""

    title: str
    shares: dict[str, float]

    @model_validator(mode="after")
    def _validate_shares(self) -> Mix:
        for name, share in self.shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"a share must be between 0 and 1, got {share:g} for {name}")
        total = sum(self.shares.values())
        if not 0.999 < total < 1.001:
            raise ValueError(f"the shares of a mix must add up to 1, got {total:g}")
        return self
